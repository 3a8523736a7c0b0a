"""Policies that need no fit: one late switch, and the optimum of the theory."""

from dataclasses import dataclass

from bss.errors import InputError, check
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.theory.optimal import Budget, OptimalSchedule, batch_schedule, optimum


@dataclass(frozen=True)
class LateSwitch:
    """A schedule with one switch: a small batch size for most of the tokens, then a multiple of it.

    If the effect of noise decays within the last part of a run, a large batch size helps only there
    (arXiv 2602.14208).

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

    def __post_init__(self) -> None:
        check(0 < self.at < 1, "at", self.at, "a share of the tokens between 0 and 1")
        check(self.factor >= 1, "factor", self.factor, "1 or more, by which the batch grows")

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule. Only the measured batch sizes of the basis are used."""
        choices = limits.within(basis.measured)
        check(choices.stages >= 2, "stages", choices.stages, "2 or more, as a late switch has 2")
        first = choices.nearest(choices.low if self.batch is None else self.batch)
        last = choices.nearest(first * self.factor)
        return BatchSchedule.late_switch(first, last, round(self.at * tokens))


@dataclass(frozen=True)
class Theory:
    """Water-filling over the intrinsic time left (Wang et al., arXiv 2602.14208).

    Attributes:
        source, capacity: s and β; they have no default.
        lr: η, the constant rate of the theory.
        noise: σ².
    """

    source: float | None = None
    capacity: float | None = None
    lr: float = 0.1
    noise: float = 1.0

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The optimum, a sequence being a sample of the theory.

        Raises:
            InputError: an exponent is missing, or a setting is out of range.
        """
        choices = limits.within(basis.measured)
        data = tokens // basis.seq_len
        best = self.best(data, choices.low, choices.high)
        in_samples = batch_schedule(best, limits.stages)
        return BatchSchedule(
            tuple(start * basis.seq_len for start in in_samples.starts),
            tuple(choices.nearest(batch) for batch in in_samples.batches),
        )

    def best(self, data: int, min_batch: float, max_batch: float) -> OptimalSchedule:
        """The optimum before it is cut into stages; data and batches in samples."""
        if self.source is None or self.capacity is None:
            missing = "source" if self.source is None else "capacity"
            raise InputError(f"{missing}: the theory's exponent is missing; set it")
        return optimum(
            Budget(self.source, self.capacity, data, self.lr, self.noise, min_batch, max_batch)
        )
