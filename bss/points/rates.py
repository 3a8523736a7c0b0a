"""The learning rates behind points, which a law of steps and tokens takes as they are.

E(S) compares batches at one rate, constant after its warm-up (derived here): where a table shows
other rates, what is fitted holds at these only.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from bss.errors import InputError

NEAR = 0.01  # rates within 1% are one


def peak_rate(run: pd.DataFrame) -> float:
    """The highest rate of a run: its peak_lr, else the largest lr; NaN where neither is told."""
    columns = [_numbers(run, column) for column in ("peak_lr", "lr") if column in run]
    known = next((rates[np.isfinite(rates)] for rates in columns if np.isfinite(rates).any()), None)
    return np.nan if known is None else float(known.max())


def one_rate(points: pd.DataFrame) -> float | None:
    """The peak rate that all points share; None where they differ or some do not tell theirs."""
    rates = points["peak_lr"].to_numpy(float)
    known = len(rates) and np.isfinite(rates).all()
    return float(rates[0]) if known and np.ptp(rates) <= NEAR * rates.max() else None


def near_as_one(peaks: Iterable[float]) -> dict[float, float]:
    """Each known rate as the highest of those within 1%: logs hold a peak at some steps only.

    Examples:
        >>> near_as_one([1e-3, 9.99e-4, 5e-4])
        {0.001: 0.001, 0.000999: 0.001, 0.0005: 0.0005}
    """
    one, highest = {}, np.inf
    for peak in sorted({peak for peak in peaks if np.isfinite(peak)}, reverse=True):
        highest = one[peak] = highest if peak >= (1 - NEAR) * highest else peak
    return one


def at_rate(runs: pd.DataFrame, rate: float) -> pd.DataFrame:
    """The runs of a run table at one peak rate, within 1%.

    Raises:
        InputError: there is none.
    """
    peaks = {name: peak_rate(run) for name, run in runs.groupby("run", sort=False)}
    names = [name for name, peak in peaks.items() if abs(peak - rate) <= NEAR * rate]
    if not names:
        known = sorted(set(near_as_one(peaks.values()).values()))
        there = ", ".join(map(rate_text, known)) or "none; give the runs a column peak_lr or lr"
        raise InputError(f"--at-rate {rate:g}: no run has it; the peak rates are {there}")
    return runs.loc[runs["run"].isin(names)]


def rate_text(rate: float) -> str:
    """A rate as people write it.

    Examples:
        >>> rate_text(0.004), rate_text(2.5e-4)
        ('4e-3', '2.5e-4')
    """
    mantissa, power = f"{rate:.3e}".split("e")
    return f"{float(mantissa):g}e{int(power)}"


def rate_warnings(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """What the rates of a table mean for a law of its points.

    Args:
        runs: a run table as `bss.tables.check_runs` returns it.
        points: its points, by `bss.points.curve.points`; of an envelope, `best_rates` tells how
            rates differ between batches.
    """
    if "trials" in points:
        return _within_runs(runs, points)
    return [*_between_batches(points), *_within_runs(runs, points)]


def _numbers(run: pd.DataFrame, column: str) -> np.ndarray:
    return pd.Series(pd.to_numeric(run[column], errors="coerce"), dtype=float).to_numpy()


def _between_batches(points: pd.DataFrame) -> list[str]:
    known = points.loc[points["peak_lr"].notna()]
    if known.empty or one_rate(known) is not None:
        return []
    batches = known.groupby("batch")["peak_lr"]
    low, high = batches.min(), batches.max()
    if any(np.ptp(ends) > NEAR * ends.max() for ends in (low.to_numpy(), high.to_numpy())):
        ends = [f"{rate_text(low[at])} at batch {at:g}" for at in (low.idxmin(), low.idxmax())]
        shown = " to ".join(ends) if low.idxmin() != low.idxmax() else ends[0]
        return [f"lr differs between batches ({shown}): B_opt is at these rates"]
    spread = f"{rate_text(low.iloc[0])} to {rate_text(high.iloc[0])}"
    return [f"every batch has several lr ({spread}), fitted together: B_opt is at no one rate"]


def _within_runs(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """Runs whose rate changes after its warm-up, or between its targets, before the last one."""
    changing = []
    met = points.loc[points["reached"]].groupby("run")["tokens_to_target"].agg(["min", "max"])
    for name, run in runs.groupby("run", sort=False) if "lr" in runs else ():
        if name not in met.index:
            continue
        rate, tokens = _numbers(run, "lr"), _numbers(run, "tokens")
        if np.isnan(rate).all():
            continue
        first, last = met.loc[name].tolist()
        full = tokens[np.argmax(rate >= (1 - NEAR) * np.nanmax(rate))]
        used = rate[(tokens >= min(first, full)) & (tokens <= last)]
        used = used[np.isfinite(used)]
        if len(used) and np.ptp(used) > NEAR * used.max():
            changing.append(f"run {name}, {rate_text(used[0])} to {rate_text(used[-1])}")
    if not changing:
        return []
    return [
        f"lr changes within {len(changing)} of {len(met)} runs before their last target (the "
        f"first: {changing[0]}): B_opt is that of these schedules, not of a constant rate"
    ]
