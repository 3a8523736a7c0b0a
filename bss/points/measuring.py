"""From loss curves to the points that a law is fitted to, and what their design means for it."""

from collections.abc import Sequence

import pandas as pd

from bss.errors import InputError
from bss.points import rates
from bss.points.conditions import conditions, independent_runs, refuse_conditions
from bss.points.curve import default_targets, evaluated, points
from bss.points.design import design_warnings
from bss.points.envelope import best_rates
from bss.tables import loss_column


def measure_points(
    runs: pd.DataFrame,
    targets: Sequence[float] | None = None,
    *,
    count: int = 5,
    warmup: int = 0,
    smooth: int | None = None,
    at_rate: float | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Steps and tokens to target losses, a row a run and target, and what must be said of them.

    Where a batch has several peak rates the points are the envelope over them.

    Args:
        runs: as `bss.tables.check_runs` returns it.
        targets: losses in nats; by default `count` are chosen.
        count: how many are chosen.
        warmup: of the learning rate, in tokens; targets that are chosen lie behind it.
        smooth: window over a noisy training loss, in tokens.
        at_rate: measure runs of this peak rate alone.

    Raises:
        InputError: runs too short to measure, or a target that none reaches.
    """
    runs, few = evaluated(runs)
    runs, left = independent_runs(runs)
    refuse_conditions(runs, conditions(runs))
    if at_rate is not None:
        runs = rates.at_rate(runs, at_rate)
    if targets is None:
        targets = default_targets(runs, count, warmup_tokens=warmup, smooth=smooth)
    every, early = _after_first_loss(points(runs, targets, smooth=smooth), runs)
    best, tuned = best_rates(every)
    traps = [*design_warnings(runs, every), *rates.rate_warnings(runs, best)]
    return best, [*few, *left, *early, *tuned, *traps]


def _after_first_loss(every: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the points without targets that a run met before its first loss, and their number.

    Of those only an upper bound on the tokens is known.

    Raises:
        InputError: If no point is left of a target.
    """
    known = runs.loc[runs[loss_column(runs)].notna() & (runs["tokens"] > 0)]
    first = every["run"].map(known.groupby("run")["tokens"].first())
    early = (every["reached"] & (every["tokens_to_target"] <= first * (1 + 1e-9))).to_numpy(bool)
    left = every.loc[~early]
    for target in sorted({*every["target_loss"]} - {*left.loc[left["reached"], "target_loss"]}):
        raise InputError(
            f"targets: runs that reach {target:g} are below it at their first loss; lower it"
        )
    if not early.any():
        return every, []
    return left, [
        f"{early.sum()} points are left out: their runs are below the target at the first loss "
        f"(the first: run {every.loc[early, 'run'].iloc[0]}); choose lower targets"
    ]
