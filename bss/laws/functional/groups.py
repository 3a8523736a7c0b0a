"""Runs grouped by what they share, to be left out together; and what too few groups cannot tell.

Horizons, and peak rates, within a factor of 1.2 are one (derived here).
"""

from collections.abc import Sequence

import numpy as np

from bss.laws.functional.curves import VARIED, Curves
from bss.units import format_tokens

GROUPS = ("run", "batch", "horizon", "peak", "cell")


def taken_of(curves: Curves) -> np.ndarray:
    """The tokens of every piece, [R, G]; 0 where padded."""
    return curves.pieces.steps * curves.pieces.batch * curves.seq_len


def horizons(curves: Curves) -> np.ndarray:
    """Tokens of each run [R], with what it takes after its last loss."""
    return taken_of(curves).sum(axis=1)


def peaks(curves: Curves) -> np.ndarray:
    """The highest rate of each run [R]."""
    return np.where(curves.pieces.steps > 0, curves.pieces.lr, 0.0).max(axis=1)


def levels(values: np.ndarray) -> list[float]:
    """The levels of values that are one within `VARIED`, ascending: the geometric mean of each."""
    logs = np.sort(np.log(values))
    parts = np.split(logs, np.flatnonzero(np.diff(logs) > np.log(VARIED)) + 1)
    return [float(np.exp(part.mean())) for part in parts]


def is_level(value: float, known: Sequence[float]) -> bool:
    """Whether a value is one of the levels."""
    return any(1 / VARIED <= value / one <= VARIED for one in known)


def labels(curves: Curves, by: str) -> list[str]:
    """The label of each run [R] in a grouping: what it shares with others."""

    def nearest(values: np.ndarray) -> list[float]:
        known = np.array(levels(values))
        return [float(known[np.abs(np.log(known / x)).argmin()]) for x in values]

    if by == "run":
        return [f"run={name}" for name in curves.runs]
    if by == "batch":
        used = curves.pieces.steps > 0
        spans = [np.unique(b[row]) for b, row in zip(curves.pieces.batch, used, strict=True)]
        return ["batch=" + "-".join(f"{b:g}" for b in dict.fromkeys(s[[0, -1]])) for s in spans]
    by_horizon = [f"tokens={format_tokens(round(x))}" for x in nearest(horizons(curves))]
    by_peak = [f"peak={x:.3g}" for x in nearest(peaks(curves))]
    if by == "cell":
        return [f"{a} {b}" for a, b in zip(by_horizon, by_peak, strict=True)]
    return by_horizon if by == "horizon" else by_peak


def not_told_apart(curves: Curves, unidentified: Sequence[str]) -> list[str]:
    """What these runs trade off against each other, and the run that would tell."""
    texts, tokens, rates = [], levels(horizons(curves)), levels(peaks(curves))
    if len(tokens) == 1 and "A_1" not in unidentified:
        wanted = format_tokens(round(float(f"{3 * tokens[0]:.2g}")))
        texts.append(
            "L_0 and A_1 buy each other: all runs have one horizon; a run of about "
            f"{wanted} tokens would tell them apart"
        )
    if len(rates) == 1 and "p" not in unidentified:
        texts.append(
            f"the clock is of one peak rate, {rates[0]:.3g}; a run at {rates[0] / 2:.3g} or "
            f"{2 * rates[0]:.3g} would tell whether time goes by the rate or by steps"
        )
    return texts
