"""A small batch size for most of the tokens, then a multiple of it.

If the effect of noise decays within the last part of a run, a large batch size helps only there
(arXiv 2602.14208).
"""

from dataclasses import dataclass

from bss.errors import check
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class LateSwitch:
    """A schedule with one switch.

    Attributes:
        at: Share of the tokens before the switch.
        factor: Ratio of the second to the first batch size.
        batch: The first batch size in sequences; default: the smallest within the limits.

    Raises:
        InputError: If a value is out of range.
    """

    at: float = 0.7
    factor: float = 8
    batch: int | None = None

    def __post_init__(self):
        check(0 < self.at < 1, "at", self.at, "a share of the tokens between 0 and 1")
        check(self.factor >= 1, "factor", self.factor, "1 or more, by which the batch grows")

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule. Only the measured batch sizes of the basis are used."""
        choices = limits.within(basis.measured)
        check(choices.stages >= 2, "stages", choices.stages, "2 or more, as a late switch has 2")
        first = choices.nearest(choices.low if self.batch is None else self.batch)
        last = choices.nearest(first * self.factor)
        return BatchSchedule.late_switch(first, last, round(self.at * tokens))
