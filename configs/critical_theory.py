"""Critical batches of SGD on least squares, exactly, and how their exponent depends on procedure.

    python -m experiments.critical_theory --config=configs/critical_theory.py:cpu

| size  | largest budget | modes | time on one CPU core | for                     |
|-------|----------------|-------|----------------------|-------------------------|
| smoke | 2^11 samples   | 64    | 20 seconds           | tests                   |
| cpu   | 2^14 samples   | 400   | 10 minutes           | results/critical_theory |

Expect, at cpu size and with the pinned procedure (the first): exponents of 0.41, 0.63, 0.36 and
−0.02 for (a, b) = (1.5, 2.5), (1.5, 4.5), (2, 3), (2, 1.5); theory 0.400, 0.625, 0.333, 0.
"""

from ml_collections import ConfigDict


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    if size not in ("smoke", "cpu"):
        raise ValueError(f"size {size!r}: expected smoke or cpu")
    smoke = size == "smoke"
    tasks = [(1.5, 2.5), (1.5, 4.5), (2.0, 3.0), (2.0, 1.5)]
    pinned = {"overhead": 0.2, "rate_cap": 0.5, "average": "start", "rates": 16 if smoke else 48}
    overlays = [
        {},
        {"rate_cap": 0.98},
        {"rate_cap": 0.25},
        {"overhead": 0.1},
        {"overhead": 0.5},
        {"average": "tail"},
        {"average": "exponential"},
    ]
    return ConfigDict(
        {
            "title": "Critical batches of SGD on least squares",
            "tasks": [{"capacity": a, "source": b} for a, b in tasks],
            "procedures": [pinned | overlay for overlay in overlays],
            "modes": 64 if smoke else 400,
            "noise": 1.0,
            "powers": (8, 11) if smoke else (8, 14),
            "results": "runs/critical_theory_smoke/results" if smoke else "results/critical_theory",
        }
    )
