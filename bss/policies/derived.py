"""The schedule that measured points call for, by the law that predicts best and can support one."""

from collections.abc import Mapping, Sequence

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.measured import Measured
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule


def derive_schedule(
    fits: Mapping[str, EsFit],
    laws: Sequence[str],
    points: pd.DataFrame,
    seq_len: int,
    tokens: int,
    limits: Limits,
) -> tuple[BatchSchedule, str, str]:
    """The schedule of the first law that can support one.

    Where no law identifies B_opt, the best measured batch at each target is followed instead.

    Args:
        fits: by the names of their laws.
        laws: of the fits, that which predicts left-out batches best first.
        points: table of points.
        seq_len: tokens per sequence.
        tokens: the budget.
        limits: what the schedule may be made of.

    Returns:
        The schedule, its law, and a sentence on how it was chosen.

    Raises:
        InputError: no law gives a schedule, and no target was reached or the limits leave none.
    """
    refused: list[str] = []
    for law in laws:
        try:
            schedule = FollowOptimum()(Basis(seq_len, fits[law]), tokens, limits)
        except InputError as error:
            refused.append(f"{law} ({error})")
            continue
        if not refused:
            return schedule, law, f"{law} predicts left-out batches best"
        note = f"{law} predicts left-out batches best of the laws that give a schedule"
        return schedule, law, f"{note}; without one: {', '.join(refused)}"
    schedule = Measured()(Basis(seq_len, points=points), tokens, limits)
    note = "no law gives a schedule, so the best measured batch at each target is followed"
    return schedule, "measured", f"{note}; {', '.join(refused)}" if refused else note
