"""LRs of points, and the envelope over LRs: each batch size at its best LR.

E(S) compares batch sizes at one LR, constant after warm-up (derived here; Zhou et al., arXiv
2601.05034, fix it). If a table has other LRs, a fit applies to these LRs only. For each batch
size, target and seed, the envelope keeps the LR that reaches the target with the fewest tokens.
A minimum over trials is biased low, and the bias grows with the number of trials. The table
therefore has this number, and whether the best LR lies between other LRs.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError

NEAR = 0.01  # LRs within 1% count as equal
_KEYS, _SEEDS = ["model", "kind", "target_loss", "batch"], ["seed", "data_seed"]


def peak_rate(run: pd.DataFrame) -> float:
    """Return the peak LR of a run: its peak_lr, else its largest lr, else NaN."""
    columns = [_numbers(run, column) for column in ("peak_lr", "lr") if column in run]
    known = next((rates[np.isfinite(rates)] for rates in columns if np.isfinite(rates).any()), None)
    return np.nan if known is None else float(known.max())


def one_rate(points: pd.DataFrame) -> float | None:
    """Return the peak LR that all points share. None if LRs differ or some are missing."""
    rates = points["peak_lr"].to_numpy(float)
    known = len(rates) and np.isfinite(rates).all()
    return float(rates[0]) if known and np.ptp(rates) <= NEAR * rates.max() else None


def near_as_one(peaks: Iterable[float]) -> dict[float, float]:
    """Map each known LR to the highest LR within 1%, as logs may miss the step of the peak.

    Examples:
        >>> near_as_one([1e-3, 9.99e-4, 5e-4])
        {0.001: 0.001, 0.000999: 0.001, 0.0005: 0.0005}
    """
    one, highest = {}, np.inf
    for peak in sorted({peak for peak in peaks if np.isfinite(peak)}, reverse=True):
        highest = one[peak] = highest if peak >= (1 - NEAR) * highest else peak
    return one


def at_rate(runs: pd.DataFrame, rate: float) -> pd.DataFrame:
    """Return the runs of a run table with one peak LR (within 1%).

    Raises:
        InputError: If no run has this peak LR.
    """
    peaks = {name: peak_rate(run) for name, run in runs.groupby("run", sort=False)}
    names = [name for name, peak in peaks.items() if abs(peak - rate) <= NEAR * rate]
    if not names:
        known = sorted(set(near_as_one(peaks.values()).values()))
        there = ", ".join(map(rate_text, known)) or "unknown (add a column peak_lr or lr)"
        raise InputError(f"--at-rate {rate:g}: no run has this peak LR; the peak LRs are {there}")
    return runs.loc[runs["run"].isin(names)]


def rate_text(rate: float) -> str:
    """Format an LR without padding of mantissa or exponent.

    Examples:
        >>> rate_text(0.004), rate_text(2.5e-4)
        ('4e-3', '2.5e-4')
    """
    mantissa, power = f"{rate:.3e}".split("e")
    return f"{float(mantissa):g}e{int(power)}"


def rate_warnings(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """Return warnings about LRs that limit what a fit to the points applies to.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        points: Its points, as `bss.points.curve.points` or `best_rates` returns them. For an
            envelope, `best_rates` has warned already about LRs that differ between batch sizes.
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
        return [f"the LR differs between batch sizes ({shown}): B_opt applies to these LRs"]
    spread = f"{rate_text(low.iloc[0])} to {rate_text(high.iloc[0])}"
    return [f"every batch size has several LRs ({spread}): B_opt does not apply to a single LR"]


def _within_runs(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """Return a warning about runs whose LR changes after warm-up and before the last target."""
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
        f"the LR changes within {len(changing)} of {len(met)} runs before their last target (the "
        f"first: {changing[0]}): B_opt applies to these schedules, not to a constant LR"
    ]


def envelope(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points at the best LR of each (model, kind, target, batch, seed).

    Runs with equal LR and seed but different names are repeats. The LR is chosen by their mean
    log tokens, and all runs at the chosen LR are kept. If the LRs of a batch size do not share
    seeds (`paired_seeds`), one best LR is chosen for all its seeds.

    An LR at which more runs reached the target is preferred. If no run reached it, the LR whose
    runs consumed the most tokens is kept, with `reached` False.

    Args:
        points: A table of points with `peak_lr`, at several LRs.

    Returns:
        The rows at the best LR with two more columns. `trials` is the number of LRs tried.
        `bracketed` is whether the best LR is neither the lowest nor the highest.

    Raises:
        InputError: If a point has no LR.
    """
    rates = points["peak_lr"].to_numpy(float)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise InputError("points: peak_lr is missing in some rows; add it to every row")
    rows, paired = [], np.zeros(len(points), int)
    seeds = points.groupby(_SEEDS, dropna=False).ngroup().to_numpy()
    for at in points.groupby(_KEYS, dropna=False).indices.values():
        paired[at] = paired_seeds(rates[at], seeds[at])
    for _, group in points.groupby([*_KEYS, paired], sort=False, dropna=False):
        own: Any = group.groupby("peak_lr")
        tried = {rate: some.to_dict("records") for rate, some in own}
        best = min(tried, key=lambda rate: _standing(tried[rate]))
        reached = any(record["reached"] for record in tried[best])
        bracketed = reached and min(tried) < best < max(tried)
        rows += [{**r, "trials": len(tried), "bracketed": bracketed} for r in tried[best]]
    return pd.DataFrame(rows)


def best_rates(points: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the envelope of a table in which some batch size has several LRs, and warnings.

    LRs within 1% count as equal. Runs without a known LR are kept. A table with one LR at each
    batch size is returned unchanged.

    Args:
        points: Points as `bss.points.curve.points` returns them.
    """
    one = near_as_one(points["peak_lr"])
    merged = points.assign(peak_lr=[one.get(rate, np.nan) for rate in points["peak_lr"]])
    known = merged.loc[merged["peak_lr"].notna()]
    rates = known.groupby(["model", "kind", "batch"], dropna=False)["peak_lr"].nunique()
    if not (rates > 1).any():
        return points, []
    best = envelope(known)
    messages = [
        "several LRs per batch size: the best is used at each batch size and target; pass "
        "--at-rate to use one LR"
    ]
    open_ended = best.loc[best["reached"] & ~best["bracketed"] & (best["trials"] > 1), "batch"]
    if len(open_ended):
        listed = ", ".join(f"{batch:g}" for batch in sorted(set(open_ended)))
        messages.append(
            f"the best LR is the lowest or the highest tried at batch size {listed}; try LRs "
            "beyond it"
        )
    repeats = int(known.duplicated([*_KEYS, *_SEEDS, "peak_lr"]).groupby(known["run"]).any().sum())
    if repeats:
        messages.append(
            f"{repeats} runs repeat the LR, batch size and seed of other runs: each counts as a "
            "separate seed, and the LR is chosen by their mean"
        )
    rest = merged.loc[merged["peak_lr"].isna()].assign(trials=1, bracketed=False)
    return (pd.concat([best, rest], ignore_index=True) if len(rest) else best), messages


def _standing(runs: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the sort key of an LR (lower is better): share of missed targets, mean log tokens.

    If all runs missed the target, more tokens are better.
    """
    missed = float(np.mean([not run["reached"] for run in runs]))
    log = float(np.mean([np.log(run["tokens_to_target"]) for run in runs]))
    return missed, log if missed < 1 else -log


def paired_seeds(group: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Return labels [n] of the seeds to compare groups of runs within; all 0 if unpaired.

    Runs of one seed share initialization and data order. Two groups are compared within seeds if
    seeds connect them; if some are not connected, seeds are repetitions (derived here).

    Args:
        group: The compared group of each run [n], e.g. its batch size.
        seed: The seed label of each run [n].

    Returns:
        Integer labels [n].
    """
    from scipy.sparse import coo_array, csgraph  # a fit is read without it

    (groups, at), (seeds, of) = (np.unique(x, return_inverse=True) for x in (group, seed))
    edges = np.ones(len(at)), (at, len(groups) + of)
    graph = coo_array(edges, shape=(len(groups) + len(seeds),) * 2)
    parts, _ = csgraph.connected_components(graph, directed=False)
    return of if parts == 1 else np.zeros_like(of)
