"""What the design of a run table does to a comparison of its batches, told before it is made."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from bss.points.rates import near_as_one

EQUAL = 1.02  # the ratio of step counts below which they are as many
_ALIKE = ["model", "kind", "target_loss", "batch"]


def design_warnings(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """The traps of a design, each with its consequence.

    Args:
        runs: a run table as `bss.tables.check_runs` returns it.
        points: its points at every rate, by `bss.points.curve.points`.
    """
    names = runs.groupby("run")["batch"].transform("nunique") == 1
    constant = runs.loc[names]
    one = near_as_one(points["peak_lr"])
    known = points.loc[points["run"].isin(list(constant["run"])) & points["peak_lr"].notna()]
    known = known.assign(peak_lr=[one[rate] for rate in known["peak_lr"]])
    return [*equal_steps(constant["batch"], constant["step"]), *_tuned(known)]


def least_of(count: int) -> float:
    """The expected least of so many draws of a standard normal, by quadrature (derived here).

    Examples:
        >>> [round(least_of(count), 3) + 0.0 for count in (1, 2, 5)]
        [0.0, -0.564, -1.163]
    """
    x = np.linspace(-9, 9, 3601)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return float(np.trapezoid(x * count * density * ndtr(-x) ** (count - 1), x))


def equal_steps(batches: Iterable[float], taken: Iterable[float]) -> list[str]:
    """What is said of batches that were all trained for as many steps.

    Args:
        batches: [n] of runs, or of their rows, each with one batch.
        taken: [n] steps there.
    """
    steps: Any = pd.Series([*taken], dtype=float).groupby([*batches]).max()
    if len(steps) < 3 or steps.index.max() < 2 * steps.index.min():
        return []
    most = steps.max()
    if most > EQUAL * steps.min():
        return []
    return [
        f"every batch was trained for as many steps ({most:.0f}), so the largest saw the most data "
        "and wins any comparison of final losses; compare tokens to a target, or train for equal "
        "tokens"
    ]


def _tuned(known: pd.DataFrame) -> list[str]:
    """Of points with their rates."""
    counts: Any = known.groupby("batch", sort=False)["peak_lr"].nunique()
    if counts.nunique() < 2:
        return []
    fewest, most, at = int(counts.min()), int(counts.max()), counts.idxmax()
    optimism = _optimism(known, least_of(fewest) - least_of(most))
    if (counts > 1).sum() == 1:
        return [
            f"lr was tuned at batch {at:g} alone, over {most}: its best{optimism}, so B_opt is "
            "pulled towards it; tune every batch alike, or take one lr (--at-rate)"
        ]
    return [
        f"batches have {fewest} to {most} lr (the most at batch {at:g}): the best of {most}"
        f"{optimism} than that of {fewest}, so B_opt is pulled towards it; try as many at each"
    ]


def _optimism(known: pd.DataFrame, deviations: float) -> str:
    """By how much the best of more rates is lower by chance: deviations times a run's scatter.

    The scatter of log tokens over runs of one rate; without such repeats, that over rates, which
    holds what rates do as well.
    """
    logs = known.assign(log=np.log(known["tokens_to_target"].to_numpy(float)))
    logs = logs.loc[logs["reached"]]
    for keys, most in (([*_ALIKE, "peak_lr"], ""), ([*_ALIKE, "seed", "data_seed"], "at most ")):
        groups = [rows["log"].to_numpy(float) for _, rows in logs.groupby(keys, dropna=False)]
        freedom = sum(len(group) - 1 for group in groups)
        if freedom:
            squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
            scatter = float(np.sqrt(squares / freedom))
            lower, between = 1 - np.exp(-deviations * scatter), "lr" if most else "runs of one lr"
            return (
                f" is {most}{lower:.1%} lower in tokens by chance ({scatter:.1%} between {between})"
            )
    return " is lower in tokens by chance"
