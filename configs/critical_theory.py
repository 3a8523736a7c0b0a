"""Exact critical batch sizes of SGD on linear regression, under several procedures.

    python -m experiments.critical_theory --config=configs/critical_theory.py:cpu

| size  | largest budget | modes | time on one CPU core | for                     |
|-------|----------------|-------|----------------------|-------------------------|
| smoke | 2^11 samples   | 64    | 20 seconds           | tests                   |
| cpu   | 2^14 samples   | 400   | 10 minutes           | results/critical_theory |

Expected at cpu size with the first procedure: exponents 0.41, 0.63, 0.36 and −0.02 for (a, b) =
(1.5, 2.5), (1.5, 4.5), (2, 3), (2, 1.5). Theory: 0.400, 0.625, 0.333, 0.
"""

from configs.overlays import sized

TASKS = ((1.5, 2.5), (1.5, 4.5), (2.0, 3.0), (2.0, 1.5))


def procedures(rates: int) -> list[dict]:
    """Return the pinned procedure, and others that differ from it in one setting."""
    pinned = {"overhead": 0.2, "rate_cap": 0.5, "average": "start", "rates": rates}
    changes = [
        {},
        {"rate_cap": 0.98},
        {"rate_cap": 0.25},
        {"overhead": 0.1},
        {"overhead": 0.5},
        {"average": "tail"},
        {"average": "exponential"},
    ]
    return [pinned | change for change in changes]


BASE = {
    "title": "Critical batches of SGD on least squares",
    "tasks": [{"capacity": capacity, "source": source} for capacity, source in TASKS],
    "procedures": procedures(rates=48),
    "modes": 400,
    "noise": 1.0,
    "powers": (8, 14),
    "results": "results/critical_theory",
}
SIZES = {
    "smoke": {
        "procedures": procedures(rates=16),
        "modes": 64,
        "powers": (8, 11),
        "results": "runs/critical_theory_smoke/results",
    },
    "cpu": {},
}

get_config = sized(BASE, SIZES, default="cpu")
