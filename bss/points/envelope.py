"""The learning-rate envelope of points: what each batch needs at its own best rate.

E(S) belongs to one learning rate (Zhou et al., arXiv 2601.05034, fix it); a team tunes it. The
envelope keeps, for each batch, target and seed, the rate that meets the target with the fewest
tokens (derived here). It is a minimum over trials, so it is optimistic by more the more trials it
is taken over: the count is kept beside it, and whether the best rate has rates on both sides.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.pairing import paired_seeds
from bss.points.rates import near_as_one

_KEYS, _SEEDS = ["model", "kind", "target_loss", "batch"], ["seed", "data_seed"]


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
        InputError: a point without a rate, or one rate twice in a group.
    """
    rates = points["peak_lr"].to_numpy(float)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise InputError("points: peak_lr is missing in some rows; the envelope needs every rate")
    rows, paired = [], np.zeros(len(points), int)
    seeds = points.groupby(_SEEDS, dropna=False).ngroup().to_numpy()
    for at in points.groupby(_KEYS, dropna=False).indices.values():
        paired[at] = paired_seeds(rates[at], seeds[at])
    for _, group in points.groupby([*_KEYS, paired], sort=False, dropna=False):
        records = group.to_dict("records")
        _refuse_repeats(records)
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


def _refuse_repeats(records: Sequence[dict[str, Any]]) -> None:
    """Refuses one rate twice, but for runs that have names of their own."""
    keys = ("peak_lr", "run", *_SEEDS)
    names = [str([record.get(key) for key in keys]) for record in records]
    if len(set(names)) < len(names):
        batch, target = records[0]["batch"], records[0]["target_loss"]
        raise InputError(
            f"points: batch {batch:g} at target {target:g} has one rate twice; "
            "keep one run for each rate and seed"
        )
