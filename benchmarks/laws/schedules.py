"""The law of loss curves on planted schedules: do its intervals hold the ends of unseen runs?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.laws.planted_schedules import planted
from bss.laws import fit_curve
from bss.laws.fitting.estimate import Options
from bss.laws.functional.curves import curves_of
from bss.laws.functional.forecast import last_losses

RESAMPLES = 40


def measured(seeds: Sequence[int]) -> dict[str, Any]:
    """The marks over these generator seeds, and by where an end is new."""
    rows = pd.concat([found(seed) for seed in seeds], ignore_index=True)
    groups = {"all": rows, "seen horizon and peak": rows.loc[~rows["horizon"] & ~rows["peak"]]}
    groups |= {f"new {name}": rows.loc[rows[name]] for name in ("horizon", "peak")}
    return {name: summary(some) for name, some in groups.items()}


def lines(told: dict[str, Any]) -> list[str]:
    """The marks as text."""
    groups = {name: some for name, some in told.items() if isinstance(some, dict)}
    return [
        f"  {name}: " + ", ".join(f"{key} {value:.3g}" for key, value in some.items())
        for name, some in groups.items()
    ]


def found(seed: int) -> pd.DataFrame:
    """What the fit says of every unseen end of a seed."""
    one = planted(seed)
    fit = fit_curve(one.runs, options=Options(RESAMPLES))
    told = last_losses(fit, curves_of(one.unseen, ends=True))
    ends = one.unseen.groupby("run", sort=False).last().reset_index()
    columns = {name: [getattr(x, name) for x in told] for name in ("value", "low", "high")}
    return ends.assign(**columns, seed=seed, clock=fit.clock, since=fit.since)


def summary(rows: pd.DataFrame) -> dict[str, float]:
    """How many ends, the share held, the rms error of log loss, and width over error."""
    if rows.empty:
        return {"ends": 0}
    value, loss, low, high = (rows[x].to_numpy(float) for x in ("value", "loss", "low", "high"))
    error, width = np.log(value / loss), np.log(high / low)
    return {
        "ends": len(rows),
        "held": float(np.mean((low <= loss) & (loss <= high))),
        "rms_error": float(np.sqrt(np.mean(error**2))),
        "median_error": float(np.median(np.abs(error))),
        "median_width": float(np.median(width)),
        "width_over_error": float(np.median(width) / np.median(np.abs(error))),
    }
