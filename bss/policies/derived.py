"""The schedule that measured points call for: B_opt along the loss, else the measured batches."""

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.measured import FollowMeasured
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule


def derive_schedule(
    fit: EsFit | None, points: pd.DataFrame, tokens: int, limits: Limits
) -> tuple[BatchSchedule, str, str]:
    """The schedule of a fit, or of the points where it identifies B_opt at no target.

    Args:
        fit: of the points; None where no law could be fitted.
        points: table of points.
        tokens: the budget.
        limits: what the schedule may be made of.

    Returns:
        The schedule, its law, and a sentence on how it was chosen.

    Raises:
        InputError: no target was reached, or the limits leave no schedule.
    """
    basis = Basis(int(points["seq_len"].iloc[0]), fit, points)
    note = "the best measured batch at each target is followed"
    if fit is None:
        return FollowMeasured()(basis, tokens, limits), "measured", f"no law is fitted, so {note}"
    try:
        schedule = FollowOptimum()(basis, tokens, limits)
    except InputError as error:
        return FollowMeasured()(basis, tokens, limits), "measured", f"{note}; {error}"
    sources = dict.fromkeys(at.best.source for at in fit.fits if at.best and at.best.value)
    return schedule, fit.name, f"{fit.name} law: {fit.choice}; B_opt by the {', '.join(sources)}"
