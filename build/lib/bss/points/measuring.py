"""From loss curves to the points that a law is fitted to, and what their design means for it."""

from collections.abc import Sequence

import pandas as pd

from bss.points import rates
from bss.points.curve import default_targets, evaluated, points
from bss.points.design import design_warnings
from bss.points.envelope import best_rates


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
    if at_rate is not None:
        runs = rates.at_rate(runs, at_rate)
    if targets is None:
        targets = default_targets(runs, count, warmup_tokens=warmup, smooth=smooth)
    every = points(runs, targets, smooth=smooth)
    best, tuned = best_rates(every)
    traps = [*design_warnings(runs, every), *rates.rate_warnings(runs, best)]
    return best, [*few, *tuned, *traps]
