"""The optimum of the functional scaling law for a task of known exponents, in closed form."""

from dataclasses import dataclass

from bss.errors import InputError
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.theory.optimal import Budget, OptimalSchedule, batch_schedule, optimum


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
