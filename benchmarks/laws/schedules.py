"""The law of loss curves on planted schedules: do its intervals hold the ends of unseen runs?

An interval is of a run, whose loss is off its risk by as much as a loss of the runs that were
fitted. Ends that `bss predict` refuses, as their rate over batch is beyond what was measured, are
told apart.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.laws.planted_schedules import planted
from bss.laws import fit_curve
from bss.laws.fitting.estimate import Options
from bss.laws.functional.curves import curves_of
from bss.laws.functional.forecast import last_losses, untested

RESAMPLES = 40


def measured(seeds: Sequence[int]) -> dict[str, Any]:
    """The marks over these generator seeds, and by where an end is new."""
    rows = pd.concat([found(seed) for seed in seeds], ignore_index=True)
    quiet = rows.loc[~rows["noisier"]]
    seen = ~quiet["horizon"] & ~quiet["peak"]
    groups = {"all": rows, "noisier than measured": rows.loc[rows["noisier"]]}
    groups |= {"seen horizon and peak": quiet.loc[seen]}
    groups |= {f"new {name}": quiet.loc[quiet[name]] for name in ("horizon", "peak")}
    told = {name: summary(some, "measured") for name, some in groups.items()}
    return told | {"all, without the noise of a run": summary(rows, "loss")}


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
    curves = curves_of(one.unseen, ends=True)
    told = last_losses(fit, curves)
    noisier = [any(x.startswith("rate over batch") for x in run) for run in untested(fit, curves)]
    ends = one.unseen.groupby("run", sort=False).last().reset_index()
    columns = {name: [getattr(x, name) for x in told] for name in ("value", "low", "high")}
    return ends.assign(**columns, noisier=noisier, seed=seed, clock=fit.clock, since=fit.since)


def summary(rows: pd.DataFrame, of: str) -> dict[str, float]:
    """Of a column: how many ends, the share held, the rms error of log loss, width over error."""
    if rows.empty:
        return {"ends": 0}
    value, loss, low, high = (rows[x].to_numpy(float) for x in ("value", of, "low", "high"))
    error, width = np.log(value / loss), np.log(high / low)
    return {
        "ends": len(rows),
        "held": float(np.mean((low <= loss) & (loss <= high))),
        "rms_error": float(np.sqrt(np.mean(error**2))),
        "median_error": float(np.median(np.abs(error))),
        "median_width": float(np.median(width)),
        "width_over_error": float(np.median(width) / np.median(np.abs(error))),
    }
