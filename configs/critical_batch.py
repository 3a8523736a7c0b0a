"""The critical batch size of arXiv 2410.21676 against model size, data and other settings.

    python -m experiments.critical_batch --config=configs/critical_batch.py:c1-12k
    python -m experiments.critical_batch --config=configs/critical_batch.py:gpu     # its price
    python -m experiments.critical_batch.analysis                 # tables, figures, findings

| part       | trains                                                       | tokens | runs |
|------------|--------------------------------------------------------------|--------|------|
| smoke      | 3 batch sizes and 20K tokens, with schedules; for tests      | 0.3M   | 16   |
| c1-7k      | 7k parameters, 7 batch sizes x 3 LRs x 2 seeds, D to 0.4M    | 33M    | 42   |
| c1-12k     | the same at 12k                                              | 33M    | 42   |
| c1-27k     | the same at 27k, D to 0.8M                                   | 52M    | 42   |
| c1-49k     | the same at 49k, D to 0.4M                                   | 33M    | 42   |
| c2-shape   | 4 layers at 12k, D to 0.2M                                   | 17M    | 42   |
| c2-context | 12k with sequences of 16 and 64, D to 0.2M                   | 33M    | 78   |
| c3-wsd     | decays of the runs of c1-12k at 3 batch sizes                | 4M     | 54   |
| c3         | cosine and schedule-free there                               | 32M    | 72   |
| c4-SIZE    | 7k, 12k, 27k, 49k, 111k, 197k: D to 0.4M, 2 seeds at a time  | 33M    | 42   |
| c4-beta1   | 12k, beta1 0.7; D to 0.2M, 4 seeds                           | 48M    | 112  |
| c4-cosine  | cosine there at lower LRs and to longer horizons, 4 seeds    | 108M   | 240  |
| appendix-b | 12k, beta1 0.95, beta2 0.99 or a short warm-up; D to 0.2M    | 69M    | 168  |
| gpu        | c1 at 0.2M to 4.7M parameters; priced, not trained           | 15G    | 252  |

Batch sizes are a factor of 2 apart, 32 to 2,048 tokens in sequences of 32; the smallest one is the
reference. LRs are a factor of 2 apart and grow with the batch size to the power 0.37, as in a
pilot. muP transfers them across widths. The half-life of beta2 is 20,000 tokens. beta2 is at least
0.95 per step. The warm-up has 10,000 tokens unless a part varies it. Evaluated seeds are 10 and
above; seeds 0 to 2 were pilots. Parts c4-7k to c4-197k have seeds that no other part has.
experiments/critical_batch has the questions and how they are decided: questions.toml, for c4-beta1
and c4-cosine settings.toml, and for the other parts of c4 sizes.toml.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from configs.overlays import PRICED, SETUP, at_size

HORIZONS = {
    64: (140_000, 200_000, 280_000),
    512: (280_000, 400_000, 560_000),
    2_048: (400_000, 560_000, 800_000),
}
"""Tokens at which annealed runs end, by batch size in tokens."""
LONGER = {
    64: (140_000, 200_000, 280_000, 400_000),
    512: (280_000, 400_000, 560_000, 800_000),
    2_048: (400_000, 560_000, 800_000, 1_600_000),
}
"""The same for runs that missed the target at these ends."""


def grid(
    low: int,
    high: int,
    *,
    rate: float,
    bend: float,
    margin: float = 1.3,
    reference: int = 64,
    half_life: int = 20_000,
    powers: Sequence[int] = (-1, 0, 1),
    ends: Mapping[int, tuple[int, ...]] | None = None,
) -> list[dict]:
    """Return batch sizes from `low` to `high` tokens, a factor of 2 apart, and their settings.

    Args:
        rate: LR at the reference batch size, from which the others follow.
        bend: Guess of b/a in tokens at the largest budget, which sets the length of runs.
        margin: Factor on that length.
        reference: In tokens, of `rate`.
        half_life: Of beta2, in tokens.
        powers: Powers of 2; the LRs of a batch size are its middle LR times 2 to these powers.
        ends: Horizons of annealed runs by batch size.
    """
    entries = []
    for tokens in (low << k for k in range(round(math.log2(high / low)) + 1)):
        middle = rate * (tokens / reference) ** 0.37
        rates = tuple(float(f"{middle * 2**i:.3g}") for i in powers)
        entry = {"tokens": tokens, "rates": rates, "length": round(margin * (1 + tokens / bend), 2)}
        entry["beta2"] = round(max(0.95, 2 ** (-tokens / half_life)), 5)
        entries.append(entry | {"ends": (ends or {}).get(tokens, ())})
    return entries


def with_horizons(ends: Mapping[int, tuple[int, ...]], **settings: Any) -> list[dict]:
    """Return the batch sizes that have horizons, of the grid of 12k parameters."""
    entries = grid(32, 2_048, rate=3e-3, bend=1_100, ends=ends, **settings)
    return [entry for entry in entries if entry["ends"]]


def mup(name: str) -> dict:
    """Return a named size whose LR follows from that of 12k parameters."""
    return {"name": name, "parametrization": "mup", "base_width": 32}


BASE = {
    "title": "The critical batch size with model and data",
    "grid": grid(32, 2_048, rate=3e-3, bend=1_100),
    "budgets": (100_000, 200_000, 400_000),
    "seeds": (10, 11),
    "rounds": 1,
    "registration": "results/predictions/critical_batch.json",
    "results": "results/critical_batch/{size}",
    **PRICED,
    "engine": "local",
    "setup": SETUP,
    "setup.model": "pico",
    "setup.text.seq_len": 32,
    "setup.optimizer": {"lr": 3e-3, "beta1": 0.9, "weight_decay": 0.0},
    "setup.schedule": {"tokens": 400_000, "warmup": 10_000},
    "setup.averages": ("1%", "4%", "16%"),
    "setup.evaluation": {"per_efold": 8, "first": 50_000, "tokens": 8_192, "test_tokens": 0},
    "setup.engine": {
        "runs": "runs/critical_batch",
        "workers": 1,
        "vmap_runs": 6,
        "evaluation_bucket": 128,
        "buckets": (1, 2, 4, 8, 16, 32, 64, 128),
    },
}


def sized_anew(name: str, bend: float) -> dict:
    """Return a part of the grid of six widths: one model, new seeds."""
    return {
        "title": "The critical batch size over six widths",
        "models": {name: mup(WIDTHS[name])},
        "grid": grid(32, 2_048, rate=3e-3, bend=bend),
        "seeds": (12, 13),
        "registration": "results/predictions/critical_batch_sizes.json",
        "setup.engine.runs": "runs/critical_batch_sizes",
    }


WIDTHS = {
    "7k": "1x24",
    "12k": "pico",
    "27k": "1x48",
    "49k": "1x64",
    "111k": "1x96",
    "197k": "1x128",
}
NEW_SEEDS = {
    "seeds": (12, 13, 14, 15),
    "models": {"12k": mup("pico")},
    "registration": "results/predictions/critical_batch_settings.json",
    "setup.engine.runs": "runs/critical_batch_sizes",
}
WSD = {"name": "WSD", "changes": {}, "branch": True}
SCHEDULES = (
    {"name": "cosine", "changes": {"schedule.rate": "cosine"}, "factor": 2.0, "annealed": True},
    {"name": "schedule-free", "changes": {"optimizer.name": "schedule_free"}, "factor": 2.0},
)
COMPARED = {
    "grid": with_horizons(HORIZONS),
    "rounds": 0,
    "decay": 0.2,
}
SIZES = {
    "smoke": {
        "models": {"7k": "1x24"},
        "grid": grid(64, 256, rate=4e-3, bend=600, powers=(0, 1), ends={256: (14_000, 20_000)}),
        "budgets": (10_000, 20_000),
        "seeds": (0,),
        "rounds": 0,
        "schedules": (WSD, *SCHEDULES),
        "decay": 0.2,
        "registration": "",
        "results": "runs/critical_batch_smoke/results",
        "setup.schedule": {"tokens": 20_000, "warmup": 1_000},
        "setup.evaluation": {"per_efold": 8, "first": 5_000, "tokens": 2_048},
        "setup.engine.runs": "runs/critical_batch_smoke",
    },
    "c1-12k": {
        "grid": grid(32, 2_048, rate=3e-3, bend=1_100, ends=HORIZONS),
        "decay": 0.2,  # keeps the checkpoints that c3 decays from
    },
    "c1-27k": {
        "models": {"27k": mup("1x48")},
        "grid": grid(32, 2_048, rate=3e-3, bend=1_700, margin=1.15),
        "budgets": (100_000, 200_000, 400_000, 800_000),
    },
    "c1-7k": {"models": {"7k": mup("1x24")}},
    "c1-49k": {"models": {"49k": mup("1x64")}},
    "c2-shape": {
        "title": "Width against depth",
        "models": {"4 layers": mup("4x16")},
        "grid": grid(32, 2_048, rate=6e-3, bend=1_000),
        "budgets": (100_000, 200_000),
    },
    "c2-context": {
        "title": "Context lengths",
        "lengths": (16, 64),
        "grid": grid(32, 2_048, rate=3e-3, bend=1_000),
        "budgets": (100_000, 200_000),
    },
    "appendix-b": {
        "title": "Momentum, second moment and warm-up",
        "variants": (
            {"name": "beta1 0.95", "changes": {"optimizer.beta1": 0.95}},
            {"name": "beta2 0.99", "changes": {"optimizer.beta2": 0.99}},
            {"name": "warm-up 2.5K", "changes": {"schedule.warmup": 2_500}},
        ),
        "grid": grid(32, 2_048, rate=3e-3, bend=1_000, powers=(-2, -1, 0, 1)),
        "budgets": (100_000, 200_000),
        "registration": "results/predictions/critical_batch_appendix.json",
        "setup.engine.runs": "runs/critical_batch_appendix",
    },
    **{f"c4-{name}": sized_anew(name, 1_100) for name in ("7k", "12k")},
    **{f"c4-{name}": sized_anew(name, 1_700) for name in ("27k", "49k", "111k", "197k")},
    "c4-beta1": {
        "title": "Less momentum",
        "variants": ({"name": "beta1 0.7", "changes": {"optimizer.beta1": 0.7}},),
        "grid": grid(32, 2_048, rate=3e-3, bend=1_000, powers=(-2, -1, 0, 1)),
        "budgets": (100_000, 200_000),
        **NEW_SEEDS,
    },
    "c4-cosine": {
        "title": "A cosine at lower LRs",
        "grid": with_horizons(LONGER, powers=(-2, -1, 0, 1)),
        "schedules": (
            {"name": "cosine", "changes": {"schedule.rate": "cosine"}, "annealed": True},
        ),
        "rounds": 0,
        **NEW_SEEDS,
    },
    "c3-wsd": {"title": "Decays of runs at constant LR", "schedules": (WSD,), **COMPARED},
    "c3": {"title": "Other LR schedules", "schedules": SCHEDULES, **COMPARED},
    "gpu": {
        "models": {"226k": "2x96", "394k": "2x128", "4700k": "mini"},
        "grid": grid(512, 1 << 15, reference=512, rate=2e-3, bend=16_000, half_life=400_000),
        "budgets": tuple(1_000_000 << k for k in range(6)),
        "seeds": (10, 11, 12, 13),
        "dry_run": True,
        "registration": "",
        "mfu": 0.01,  # assumed: small float32 models wait for launches
        "setup.model": "mini",
        "setup.text": {"corpus": "synthetic", "seq_len": 128},
        "setup.schedule": {"tokens": 32_000_000, "warmup": 100_000},
        "setup.evaluation": {"tokens": 131_072, "first": 500_000},
        "setup.engine.buckets": (2, 4, 8, 16, 32, 64),
    },
}


def get_config(part: str = "c1-12k") -> ConfigDict:
    """Return the config of a part.

    Raises:
        ValueError: If the part is unknown.
    """
    parts = {name: {"models": {"12k": "pico"}, **one} for name, one in SIZES.items()}
    return at_size(part, BASE, parts)
