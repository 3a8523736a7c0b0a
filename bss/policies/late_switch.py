"""A small batch for most of the tokens, then a multiple of it.

Where noise is forgotten within the last part of a run, a large batch is only of use there
(arXiv 2602.14208: hard tasks keep the smallest batch and grow it late).
"""

from dataclasses import dataclass

from bss.errors import check
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class LateSwitch:
    """One switch, at a share of the tokens.

    Attributes:
        at: that share.
        factor: by which the batch grows.
        batch: the first batch, in sequences; by default the smallest within the limits.

    Raises:
        InputError: on construction, if one is out of range.
    """

    at: float = 0.7
    factor: float = 8
    batch: int | None = None

    def __post_init__(self):
        check(0 < self.at < 1, "at", self.at, "a share of the tokens between 0 and 1")
        check(self.factor >= 1, "factor", self.factor, "1 or more, by which the batch grows")

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The switch; it needs nothing but the batches measured, for the limits."""
        choices = limits.within(basis.measured)
        choices.check_switch()
        first = choices.nearest(choices.low if self.batch is None else self.batch)
        last = choices.nearest(first * self.factor)
        return BatchSchedule.late_switch(first, last, round(self.at * tokens))
