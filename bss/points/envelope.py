"""The learning-rate envelope of points: what each batch needs at its own best rate.

E(S) belongs to one learning rate (Zhou et al., arXiv 2601.05034, fix it); a team tunes it. The
envelope keeps, for each batch, target and seed, the rate that meets the target with the fewest
tokens (derived here). It is a minimum over trials, so it is optimistic by more the more trials it
is taken over: the count is kept beside it, and whether the best rate has rates on both sides.
"""

from operator import itemgetter

import numpy as np
import pandas as pd

from bss.errors import InputError

_KEYS = ["model", "kind", "target_loss", "batch", "seed", "data_seed"]


def envelope(points: pd.DataFrame) -> pd.DataFrame:
    """The best rate of each (model, kind, target, batch, seed).

    Args:
        points: table of points with `peak_lr`, at several rates.

    Returns:
        One row for each, with two more columns: `trials`, the rates tried, and `bracketed`, whether
        the best of them is neither the lowest nor the highest. Where no rate reached the target,
        the row of the rate that consumed the most tokens, with `reached` False.

    Raises:
        InputError: a point without a rate, or one rate twice in a group.
    """
    rates = points["peak_lr"].to_numpy(float)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise InputError("points: peak_lr is missing in some rows; the envelope needs every rate")
    rows = []
    for _, group in points.groupby(_KEYS, sort=False, dropna=False):
        records = group.to_dict("records")
        tried = sorted(record["peak_lr"] for record in records)
        if len(set(tried)) < len(tried):
            batch, target = records[0]["batch"], records[0]["target_loss"]
            raise InputError(
                f"points: batch {batch:g} at target {target:g} has one rate twice; "
                "keep one run for each rate and seed"
            )
        reached, tokens = [r for r in records if r["reached"]], itemgetter("tokens_to_target")
        best = min(reached, key=tokens) if reached else max(records, key=tokens)
        bracketed = bool(reached) and tried[0] < best["peak_lr"] < tried[-1]
        rows.append({**best, "trials": len(tried), "bracketed": bracketed})
    return pd.DataFrame(rows)
