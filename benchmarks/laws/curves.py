"""E(S) on planted curves: is B_opt right where it is inside, and silent where it is an end?"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.laws.planted_curves import SMALLEST, planted
from bss.laws import fit_es
from bss.laws.fitting.estimate import Options
from bss.points.curve import points

SETS = 13  # of each kind and seed
RESAMPLES = 20
ENDS = ("value", "low", "high")


def measured(seeds: Sequence[int]) -> dict[str, Any]:
    """The marks over these generator seeds, and every set."""
    rows = []
    for seed in seeds:
        for i in range(SETS):
            one = SETS * seed + i
            rows += [found("inner", one), found(SMALLEST[one % len(SMALLEST)], one)]
    return summary(rows) | {"sets": rows}


def lines(told: dict[str, Any]) -> list[str]:
    """The marks as text."""
    return [f"  {name}: {x:.3g}" for name, x in told.items() if isinstance(x, int | float)]


def found(law: str, seed: int) -> dict[str, Any]:
    """What `bss fit es` says of a set."""
    one = planted(law, seed)
    fit = fit_es(points(one.runs, [one.target]), options=Options(RESAMPLES))
    best = fit.fits[0].best
    assert best is not None
    return {
        "law": law,
        "true": one.best,
        "depth": one.depth,
        "value": best.value,
        "low": best.low,
        "high": best.high,
        "status": best.status,
        "chosen": fit.name,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The marks: a number, within 1.5 times, inside the interval; and numbers where none is due."""
    inner = [row for row in rows if row["law"] not in SMALLEST]
    ends = [row for row in rows if row["law"] in SMALLEST]
    told = [row for row in inner if row["value"] is not None]
    true, value, low, high = (np.array([row[n] for row in told]) for n in ("true", *ENDS))
    return {
        "inner_sets": len(inner),
        "number": len(told) / max(len(inner), 1),
        "within_1.5": float(np.mean(np.abs(np.log(value / true)) < math.log(1.5))),
        "held": float(np.mean((low <= true) & (true <= high))),
        "median_width": float(np.median(high / low)),
        "smallest_best_sets": len(ends),
        "smallest_best_numbers": sum(row["value"] is not None for row in ends),
    }
