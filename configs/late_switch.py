"""Fast catch-up and late switching, with tuned baselines, under constant LR, WSD and cosine.

    python -m experiments.late_switch --config=configs/late_switch.py:cpu
    python -m experiments.late_switch --config=configs/late_switch.py:paper --config.dry_run=True

| size  | model            | tokens of a run | what it needs                                      |
|-------|------------------|-----------------|----------------------------------------------------|
| smoke | 12k parameters   | 60K             | a few minutes of CPU; for tests                    |
| cpu   | 99k parameters   | 1M              | 190M tokens in all, of which es_wsd_archive.py     |
|       |                  |                 | shares 70M; 2 cores, an hour                       |
| gpu   | 10.6M parameters | 25M             | one accelerator, synthetic; not measured           |
| paper | 604M parameters  | 30B             | C4; prints its price with --config.dry_run         |

cpu and gpu have the set-up of E(S) under WSD and share its runs directory. So runs with fixed batch
sizes and the schedules of results/es_wsd/schedules.json are trained once. The paper's dense models
reach 492M on C4; batch sizes of 512 to 1024 are multiplied by 2 to 8 [secondary]. 604M is the
nearest size here; its LRs and lengths are our choice. The paper's mixture of experts is not
included.
"""

import itertools
import json
from pathlib import Path

from ml_collections import ConfigDict

from configs import es_wsd_archive as es_wsd
from configs.overlays import PRICED, at_size

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


BASE = {
    "title": "Fast catch-up, late switching",
    "grid": [entry for entry in es_wsd.BASE["grid"] if entry["batch"] <= 32],
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
    **PRICED,
}
SIZES = {
    "smoke": {
        "grid": es_wsd.grid({1: (8e-3,), 4: (8e-3,), 8: (8e-3,), 2: (4e-3, 8e-3)}),
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
        "setup.engine.runs": "runs/late_switch_smoke",
    },
    "cpu": {"continued": 4.0, "continued_seeds": (0, 1, 2)},
    "gpu": {
        "grid": es_wsd.grid({32: (1e-3, 2e-3), 64: (2e-3,), 128: (2e-3,), 256: (2e-3, 4e-3)}),
        "small": 32,
        "large": 256,
        "schedules": schedules(32, 256, 2e-3, growing("0:32 30%:64 60%:128", 2e-3), parts=()),
        "cosine": 0.25,
        "mfu": 0.1,
        "setup.schedule.tokens": 25_000_000,
    },
    "paper": {
        "grid": es_wsd.grid(dict.fromkeys((256, 512, 1024, 2048), (2.5e-4, 5e-4, 1e-3))),
        "small": 512,
        "large": 2048,
        "shared_rate": 5e-4,
        "schedules": schedules(512, 2048, 5e-4, growing("0:256 30%:512 60%:1024", 5e-4)),
        "setup.model": "604M",
        "setup.schedule": {"tokens": 30_000_000_000, "warmup": 300_000_000},
        "setup.engine.runs": "runs/late_switch_paper",
    },
}


def get_config(size: str = "cpu") -> ConfigDict:
    """Return the experiment at one of its sizes."""
    return at_size(size, BASE | {"setup": es_wsd.get_config(size).setup.to_dict()}, SIZES)
