"""Fast catch-up and late switching, with tuned baselines, under constant rate, WSD and cosine.

    python -m experiments.late_switch --config=configs/late_switch.py:cpu
    python -m experiments.late_switch --config=configs/late_switch.py:paper --config.dry_run=True

| size  | model            | tokens of a run | what it needs                                      |
|-------|------------------|-----------------|----------------------------------------------------|
| smoke | 12k parameters   | 60K             | a few minutes of CPU; for tests                    |
| cpu   | 99k parameters   | 1M              | 190M tokens in all, of which `configs/es_wsd.py`   |
|       |                  |                 | shares 70M; 2 cores, an hour                       |
| gpu   | 10.6M parameters | 25M             | one accelerator, synthetic; not measured           |
| paper | 604M parameters  | 30B             | C4; prints its price with --config.dry_run         |

cpu and gpu have the set-up of E(S) under WSD and share its runs directory: the constants of both
are the same runs, trained once, and so are the schedules that results/es_wsd/schedules.json names.
The paper's dense models reach 492M on C4, with base batches of 512 to 1024 switched to 2 to 8 times
as much [secondary]; 604M is the nearest size here, and its rates and lengths are our choice. Its
mixture of experts is not here.
"""

import itertools
import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs import es_wsd

SIZES = es_wsd.SIZES
ES = Path(__file__).parents[1] / "results/es_wsd/schedules.json"
LAST = (0.05, 0.1, 0.2)  # after the switch, of each budget below the whole
ES_NAMES = ("B_opt along the annealed loss", "the surface's own optimum")


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    base: Any = es_wsd.get_config(size)
    setup = base.setup
    smoke, paper = size == "smoke", size == "paper"
    if smoke:
        setup.engine.runs = "runs/late_switch_smoke"
    if paper:
        setup.model = "604M"
        setup.schedule.tokens = 30_000_000_000
        setup.schedule.warmup = 300_000_000
        setup.engine.runs = "runs/late_switch_paper"
    if size == "gpu":
        setup.schedule.tokens = 25_000_000
    grid = {
        "smoke": {batch: (8e-3,) for batch in (1, 4, 8)} | {2: (4e-3, 8e-3)},
        "cpu": {e["batch"]: e["rates"] for e in base.grid if e["batch"] <= 32},
        "gpu": {32: (1e-3, 2e-3), 64: (2e-3,), 128: (2e-3,), 256: (2e-3, 4e-3)},
        "paper": {batch: (2.5e-4, 5e-4, 1e-3) for batch in (256, 512, 1024, 2048)},
    }[size]
    small, last, rate = {
        "smoke": (2, 8, 8e-3),
        "cpu": (4, 32, 2e-3),
        "gpu": (32, 256, 2e-3),
        "paper": (512, 2048, 5e-4),
    }[size]
    one = (rate,)
    late = () if size != "smoke" else one
    budgets = (0.25, 0.32, 0.4, 0.5, 0.63, 0.8)
    points = budgets if size in ("cpu", "paper") else ()
    schedules = [
        {"name": "early", "batch": f"0:{small} 20%:{last}", "rates": one},
        {"name": "middle", "batch": f"0:{small} 50.4%:{last}", "rates": one},
        {"name": "late", "batch": f"0:{small} 70%:{last}", "rates": late},
        *(
            {"name": f"at {share}%", "batch": f"0:{small} {share}%:{last}", "rates": one}
            for share in (85, 90, 95)
        ),
        {"name": "late, from twice", "batch": f"0:{2 * small} 70%:{last}", "rates": one},
        {"name": "stages", "batch": stages(small, last), "rates": one},
        {"name": "ramp", "batch": ramp(small, last), "rates": one},
        *({"name": name, **entry} for name, entry in from_es(size, rate).items()),
        *(
            switch_point(part, share, small, last, rate)
            for part, share in itertools.product(points, LAST)
            if round(part * (1 - share), 3) not in (0.2, 0.504)  # early and middle serve them
        ),
    ]
    return ConfigDict(
        {
            "title": "Fast catch-up, late switching",
            "grid": [{"batch": batch, "rates": tried} for batch, tried in grid.items()],
            "small": small,
            "large": last,
            "shared_rate": rate,
            "schedules": schedules,
            "forks": (0.2, 0.32, 0.504, 0.7, 0.75, 0.8),
            "budgets": (*budgets, 1.0),
            "starts": (0.0, 0.25, 0.5),
            "extrapolated": (4.0, 16.0),
            "seeds": (0,) if smoke else (0, 1, 2),
            "decay": 0.2,
            "cosine": {"smoke": 0.5, "gpu": 0.25}.get(size, 1.0),
            "continued": {"smoke": 2.0, "cpu": 4.0}.get(size, 1.0),
            "continued_seeds": (0, 1, 2) if size == "cpu" else (0,),
            "resamples": 10 if smoke else 100,
            "results": f"runs/late_switch_{size}/results",
            "dry_run": False,
            "peak_flops": 989e12,
            "mfu": 0.1 if size == "gpu" else 0.4,
            "setup": setup,
        }
    )


def stages(small: int, last: int) -> str:
    """Several stages, doubling the batch from small to last, the last at 80% of the tokens."""
    if last == 4 * small:
        return f"0:{small} 50.4%:{2 * small} 75%:{last}"
    return f"0:{small} 50.4%:{2 * small} 70%:{4 * small} 80%:{last}"


def ramp(small: int, last: int) -> str:
    """Three switches at even distances, from half of the small batch."""
    return f"0:{max(small // 2, 1)} 25%:{small} 50%:{2 * small} 75%:{last}"


def switch_point(part: float, share: float, small: int, last: int, rate: float) -> dict:
    """A run to a part of the tokens, whose last share has the large batch."""
    return {
        "name": f"last {share:.0%} of {part:.0%}",
        "batch": f"0:{small} {100 * part * (1 - share):.4g}%:{last}",
        "rates": (rate,),
        "until": part,
    }


def from_es(size: str, rate: float) -> dict[str, dict]:
    """The schedules of E(S), as E(S) under WSD found them at this size, or at that of the demo."""
    if size == "cpu" and ES.exists():
        found = json.loads(ES.read_text())
        found = {name: found[name] for name in ES_NAMES if name in found}
        # A schedule of two stages branches from its first batch there, others start afresh.
        return {name: {"batch": b, "alone": b.count(":") > 2} for name, b in found.items()}
    batch = {
        "smoke": "0:1 30%:2 60%:4",
        "cpu": "0:1 12%:2 21%:4 55%:7",
        "gpu": "0:32 30%:64 60%:128",
        "paper": "0:256 30%:512 60%:1024",
    }[size]
    return {ES_NAMES[0]: {"batch": batch, "rates": (rate,)}}
