"""Which rate cut a batch change equals: forks of one checkpoint, beside the run that goes on.

Derived here. The functional law (arXiv 2509.19189) has noise in proportion to rate over batch, so
that batch × 4 is the rate / 4; the clock that counts rates of Adam's steps alone has / 2.
"""

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd

CUTS = (1, 2, 4)
SHARED = 1_000_000
"""Tokens at which all are compared: those of the run that goes on."""


def equal_cuts(curves: pd.DataFrame) -> pd.DataFrame:
    """The cut that each change of the batch equals, by seed.

    Args:
        curves: the rows of part cuts of curves.parquet: columns run, seed, tokens, eval_loss,
            peak_lr, schedule.batch and optimizer.beta1.

    Returns:
        batch, beta1, seed, and two cuts: at_tokens, where all have as many tokens, and at_sums,
        where all rates since the fork add up to one sum, which is where the runs end.
    """
    rows, kinds = [], ["schedule.batch", "optimizer.beta1", "optimizer.beta2"]
    for seed, table in curves.groupby("seed"):
        constant = ~table["schedule.batch"].str.contains(":")
        whole = table.loc[constant, "peak_lr"].max()
        ends = {
            cut: _ends(table.loc[constant & np.isclose(table["peak_lr"], whole / cut)])
            for cut in CUTS
        }
        for (batch, beta1, beta2), own in table.loc[~constant].groupby(kinds):
            told = dict(zip(("at_tokens", "at_sums"), _cuts(ends, _ends(own)), strict=True))
            rows.append({"batch": batch, "beta1": beta1, "beta2": beta2, "seed": seed} | told)
    return pd.DataFrame(rows)


def _ends(curve: pd.DataFrame) -> np.ndarray:
    """Held-out losses [2] of a run, at the shared tokens and at its end."""
    at = [np.log(SHARED), np.inf]
    return np.interp(
        at, np.log(curve["tokens"].to_numpy(float)), curve["eval_loss"].to_numpy(float)
    )


def _cuts(ends: Mapping[int, np.ndarray], own: np.ndarray) -> list[float]:
    return [equal_cut([ends[cut][i] for cut in CUTS], loss) for i, loss in enumerate(own.tolist())]


def equal_cut(losses: list[float], loss: float) -> float:
    """The cut, of 1 and more, at which losses at cuts 1, 2 and 4 come to that of another run.

    Linear in the log of the cut, on beyond the last by its last step; the first where there are
    several, NaN where the losses go the other way.

    Examples:
        >>> [round(equal_cut([2.0, 1.9, 1.8], loss), 2) for loss in (1.95, 1.8, 1.7, 2.1)]
        [1.41, 4.0, 8.0, nan]
    """
    for i, (first, last) in enumerate(itertools.pairwise(losses)):
        share = (loss - first) / (last - first) if last != first else np.nan
        if share >= 0 and (share <= 1 or i == len(losses) - 2):
            return float(2 ** (i + share))
    return np.nan
