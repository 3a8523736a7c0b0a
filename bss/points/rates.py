"""The learning rates of points, and the envelope over them: each batch at its best LR.

E(S) compares batch sizes at one LR, constant after its warm-up (derived here; Zhou et al., arXiv
2601.05034, fix it): if a table has other LRs, a fit applies to these only. The envelope keeps, for
each batch, target and seed, the LR that reaches the target with the fewest tokens. It is a minimum
over trials, so it is optimistic by more the more trials it is taken over: the table has their
number, and whether the best LR has LRs on both sides.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError

NEAR = 0.01  # rates within 1% are one
_KEYS, _SEEDS = ["model", "kind", "target_loss", "batch"], ["seed", "data_seed"]


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


def envelope(points: pd.DataFrame) -> pd.DataFrame:
    """The best rate of each (model, kind, target, batch, seed).

    Runs of one rate and seed that have names of their own are repeats: the rate is chosen by their
    mean log tokens, and all of its runs are kept. So are all runs of a batch if seeds do not
    connect its rates (`paired_seeds`): it then has one best rate, not one per seed.

    Args:
        points: table of points with `peak_lr`, at several rates.

    Returns:
        The rows of that rate, with two more columns: `trials`, the rates tried, and `bracketed`,
        whether the best of them is neither the lowest nor the highest. A rate that reached the
        target in more of its runs comes first. Where no rate reached it, the row of the rate that
        consumed the most tokens, with `reached` False.

    Raises:
        InputError: a point without a rate.
    """
    rates = points["peak_lr"].to_numpy(float)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise InputError("points: peak_lr is missing in some rows; the envelope needs every rate")
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
    """The envelope of a table in which some batch has several rates, and what is said of it.

    Rates within 1% are one. Runs without a known rate are kept as they are. A table with one rate
    at each batch comes back as it is.

    Args:
        points: as `bss.points.curve.points` returns them.
    """
    one = near_as_one(points["peak_lr"])
    merged = points.assign(peak_lr=[one.get(rate, np.nan) for rate in points["peak_lr"]])
    known = merged.loc[merged["peak_lr"].notna()]
    rates = known.groupby(["model", "kind", "batch"], dropna=False)["peak_lr"].nunique()
    if not (rates > 1).any():
        return points, []
    best = envelope(known)
    messages = [
        "several lr at a batch: the best is taken at each batch and target (--at-rate for one)"
    ]
    open_ended = best.loc[best["reached"] & ~best["bracketed"] & (best["trials"] > 1), "batch"]
    if len(open_ended):
        listed = ", ".join(f"{batch:g}" for batch in sorted(set(open_ended)))
        messages.append(
            f"the best lr is the lowest or the highest tried at batch {listed}: try beyond"
        )
    repeats = int(known.duplicated([*_KEYS, *_SEEDS, "peak_lr"]).groupby(known["run"]).any().sum())
    if repeats:
        messages.append(
            f"{repeats} runs repeat the lr, batch and seed of others: each counts as a seed of its "
            "own, and lr is chosen by their mean"
        )
    rest = merged.loc[merged["peak_lr"].isna()].assign(trials=1, bracketed=False)
    return (pd.concat([best, rest], ignore_index=True) if len(rest) else best), messages


def _standing(runs: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """What the best rate has the least of: runs that missed the target, then mean log tokens.

    Where all missed it, the most tokens say the most.
    """
    missed = float(np.mean([not run["reached"] for run in runs]))
    log = float(np.mean([np.log(run["tokens_to_target"]) for run in runs]))
    return missed, log if missed < 1 else -log


def paired_seeds(group: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Seed effects [n] that groups of runs are compared within; 0 for all if there are none.

    Runs of one seed share initialization and data order. Two groups are compared within seeds if
    seeds connect them; if some are not connected, seeds are repetitions (derived here).

    Args:
        group: [n], what is compared, e.g. the batch size of each run.
        seed: [n], a label per run.

    Returns:
        Integer labels [n].
    """
    from scipy.sparse import coo_array, csgraph  # a fit is read without it

    (groups, at), (seeds, of) = (np.unique(x, return_inverse=True) for x in (group, seed))
    edges = np.ones(len(at)), (at, len(groups) + of)
    graph = coo_array(edges, shape=(len(groups) + len(seeds),) * 2)
    parts, _ = csgraph.connected_components(graph, directed=False)
    return of if parts == 1 else np.zeros_like(of)
