"""Fast catch-up and late switching, with tuned baselines, under constant LR, WSD and cosine.

    python -m experiments.late_switch --config=configs/late_switch.py:cpu
    python -m experiments.late_switch --config=configs/late_switch.py:paper --config.dry_run=True

| size  | model            | tokens of a run | what it needs                                      |
|-------|------------------|-----------------|----------------------------------------------------|
| smoke | 12k parameters   | 60K             | a few minutes of CPU; for tests                    |
| cpu   | 99k parameters   | 1M              | 190M tokens in all; 2 cores, an hour               |
| gpu   | 10.6M parameters | 25M             | one accelerator, synthetic; not measured           |
| paper | 604M parameters  | 30B             | C4; prints its price with --config.dry_run         |

The schedules of E(S) are those of results/es_wsd/schedules.json. Every batch is tried at three
rates, a factor 2 apart; the second moment has one half-life in tokens; there is no weight decay.
The paper's dense models reach 492M on C4, with base batches of 512 to 1024 switched to 2 to 8 times
as much [secondary]; 604M is the nearest size here, and its rates and lengths are our choice. Its
mixture of experts is not here.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.overlays import PRICED, SETUP, sized

ES_NAMES = ("B_opt along the annealed loss", "the surface's own optimum")
OF_ES = Path(__file__).parents[1] / "results/es_wsd/schedules.json"
LAST = (0.05, 0.1, 0.2)  # after the switch, of each budget below the whole
BUDGETS = (0.25, 0.32, 0.4, 0.5, 0.63, 0.8)


def schedules(
    small: int,
    last: int,
    rate: float,
    from_es: list[dict],
    *,
    late: tuple[float, ...] = (),
    parts: tuple[float, ...] = BUDGETS,
) -> list[dict]:
    """Return the batch schedules that are tried.

    Args:
        small: first batch, in sequences.
        last: the large one.
        rate: peak learning rate.
        from_es: schedules that E(S) calls for.
        late: LRs of the late switch; empty to tune it.
        parts: of the tokens: runs that end there have the large batch in their last shares.
    """
    one = (rate,)
    batches = {
        "early": f"0:{small} 20%:{last}",
        "middle": f"0:{small} 50.4%:{last}",
        "late": f"0:{small} 70%:{last}",
        **{f"at {share}%": f"0:{small} {share}%:{last}" for share in (85, 90, 95)},
        "late, from twice": f"0:{2 * small} 70%:{last}",
        "stages": stages(small, last),
        "ramp": f"0:{max(small // 2, 1)} 25%:{small} 50%:{2 * small} 75%:{last}",
    }
    rates = dict.fromkeys(batches, one) | {"late": late}
    entries = [{"name": name, "batch": batches[name], "rates": rates[name]} for name in batches]
    entries += from_es
    for part, share in itertools.product(parts, LAST):
        at = part * (1 - share)
        if round(at, 3) not in (0.2, 0.504):  # early and middle serve them
            name, batch = f"last {share:.0%} of {part:.0%}", f"0:{small} {100 * at:.4g}%:{last}"
            entries.append({"name": name, "batch": batch, "rates": one, "until": part})
    return entries


def from_es_wsd() -> list[dict]:
    """Return the schedules of results/es_wsd; two-stage ones are forked from the first."""
    known = json.loads(OF_ES.read_text())
    return [
        {"name": name, "batch": known[name], "alone": len(known[name].split()) > 2}
        for name in ES_NAMES
    ]


def stages(small: int, last: int) -> str:
    """Several stages, doubling the batch from small to last, the last at 80% of the tokens."""
    if last == 4 * small:
        return f"0:{small} 50.4%:{2 * small} 75%:{last}"
    return f"0:{small} 50.4%:{2 * small} 70%:{4 * small} 80%:{last}"


def growing(batch: str, rate: float) -> list[dict]:
    """Return a schedule that grows like B_opt of E(S), if none has been measured."""
    return [{"name": ES_NAMES[0], "batch": batch, "rates": (rate,)}]


def grid(rates: Mapping[int, Sequence[float]]) -> list[dict]:
    """Batches with the rates that each is tried at."""
    return [{"batch": batch, "rates": tried} for batch, tried in rates.items()]


BASE = {
    "title": "Fast catch-up, late switching",
    "grid": grid(
        {
            1: (5e-4, 1e-3, 2e-3),
            2: (1e-3, 2e-3, 4e-3),
            4: (1e-3, 2e-3, 4e-3),
            8: (2e-3, 4e-3, 8e-3),
            16: (2e-3, 4e-3, 8e-3),
            32: (2e-3, 4e-3, 8e-3),
        }
    ),
    "small": 4,
    "large": 32,
    "shared_rate": 2e-3,
    "schedules": schedules(
        4,
        32,
        2e-3,
        from_es_wsd(),
    ),
    "forks": (0.2, 0.32, 0.504, 0.7, 0.75, 0.8),
    "budgets": (*BUDGETS, 1.0),
    "starts": (0.0, 0.25, 0.5),
    "extrapolated": (4.0, 16.0),
    "seeds": (0, 1, 2),
    "decay": 0.2,
    "cosine": 1.0,
    "continued": 1.0,
    "continued_seeds": (0,),
    "resamples": 100,
    "results": "runs/late_switch_{size}/results",
    "engine": "local",
    "setup": SETUP,
    "setup.optimizer.beta2_half_life": 7_000,
    "setup.schedule": {"tokens": 1_000_000, "warmup": 50_000},
    "setup.evaluation": {"per_efold": 15, "first": 80_000},
    "setup.engine.runs": "runs/es_wsd_{size}",
    **PRICED,
}
ACCELERATOR = {
    "setup.evaluation": {"tokens": 262_144, "test_tokens": 1_048_576},
    "setup.engine.buckets": (8, 16, 32, 64),
}
SIZES = {
    "smoke": {
        "grid": grid({1: (8e-3,), 4: (8e-3,), 8: (8e-3,), 2: (4e-3, 8e-3)}),
        "small": 2,
        "large": 8,
        "shared_rate": 8e-3,
        "schedules": schedules(
            2, 8, 8e-3, growing("0:1 30%:2 60%:4", 8e-3), late=(8e-3,), parts=()
        ),
        "seeds": (0,),
        "cosine": 0.5,
        "continued": 2.0,
        "resamples": 10,
        "setup.model": "pico",
        "setup.schedule": {"tokens": 60_000, "warmup": 3_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 8_000},
        "setup.engine": {"runs": "runs/late_switch_smoke", "buckets": (1, 2), "workers": 1},
    },
    "cpu": {"continued": 4.0, "continued_seeds": (0, 1, 2)},
    "gpu": ACCELERATOR
    | {
        "grid": grid({32: (1e-3, 2e-3), 64: (2e-3,), 128: (2e-3,), 256: (2e-3, 4e-3)}),
        "small": 32,
        "large": 256,
        "schedules": schedules(32, 256, 2e-3, growing("0:32 30%:64 60%:128", 2e-3), parts=()),
        "cosine": 0.25,
        "mfu": 0.1,
        "setup.model": "10M",
        "setup.text": {"corpus": "synthetic", "seq_len": 256},
        "setup.optimizer": {"lr": 2e-3, "beta2_half_life": 100_000},
        "setup.schedule": {"tokens": 25_000_000, "warmup": 1_000_000},
        "setup.evaluation.first": 3_000_000,
    },
    "paper": ACCELERATOR
    | {
        "grid": grid(dict.fromkeys((256, 512, 1024, 2048), (2.5e-4, 5e-4, 1e-3))),
        "small": 512,
        "large": 2048,
        "shared_rate": 5e-4,
        "schedules": schedules(512, 2048, 5e-4, growing("0:256 30%:512 60%:1024", 5e-4)),
        "setup.model": "604M",
        "setup.text.corpus": "c4/en",
        "setup.text.tokenizer": "data/gpt-neox/tokenizer.json",
        "setup.text.seq_len": 2048,
        "setup.optimizer": {"lr": 1e-3, "beta2_half_life": 10_000_000},
        "setup.schedule": {"tokens": 30_000_000_000, "warmup": 300_000_000},
        "setup.evaluation.first": 500_000_000,
        "setup.engine.checkpoint_seconds": 600.0,
        "setup.engine.runs": "runs/late_switch_paper",
    },
}

get_config = sized(BASE, SIZES, default="cpu")
