"""Micro-batch sizes: each step of a plan accumulates the largest size that divides its batch.

Pure arithmetic (derived here); the compiled programs are in `bss.training.programs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bss.errors import InputError
from bss.schedules.plan import Plan

LARGEST = 32
"""The largest micro-batch, in sequences, where no sizes are named."""


@dataclass(frozen=True)
class BucketSizes:
    """The allowed micro-batch sizes.

    Attributes:
        sizes: sequences per micro-batch; empty for every size up to 32.
        split: accumulate at least two micro-batches in every step of a batch above 1.

    Examples:
        >>> buckets = BucketSizes((8, 32))
        >>> buckets.bucket(16), buckets.bucket(64)
        (8, 32)
    """

    sizes: Sequence[int] = ()
    split: bool = False

    def __post_init__(self) -> None:
        if self.sizes and min(self.sizes) < 1:
            raise InputError(f"buckets: {self.sizes} given; write positive integers, like 8,32")

    def bucket(self, batch: int) -> int:
        """Return the micro-batch size of a batch, both in sequences.

        Raises:
            InputError: If no allowed size divides the batch.
        """
        choices = self.sizes or range(1, LARGEST + 1)
        fitting = [bucket for bucket in choices if batch % bucket == 0]
        if not fitting:
            raise InputError(_none_divides(batch, choices))
        if self.split and batch > 1:
            fitting = [bucket for bucket in fitting if bucket < batch]
        if not fitting:
            raise InputError(
                f"batch: {batch} is not two or more buckets of {', '.join(map(str, choices))}; "
                "add a smaller divisor, or do not split for the noise scale"
            )
        return max(fitting)

    def max_microbatches(self, plan: Plan) -> dict[int, int]:
        """Return, by micro-batch size in ascending order, the maximum number that one step
        accumulates.
        """
        most: dict[int, int] = {}
        for batch in sorted(segment.batch for segment in plan.segments):
            bucket = self.bucket(batch)
            most[bucket] = batch // bucket
        return dict(sorted(most.items()))


def _none_divides(batch: int, choices: Sequence[int]) -> str:
    below = max(batch // bucket * bucket for bucket in choices)
    above = min(-(-batch // bucket) * bucket for bucket in choices)
    nearest = f"{below} and {above}" if below else f"{above}"
    return (
        f"batch: {batch} is a multiple of no bucket of {', '.join(map(str, choices))}; "
        f"nearest that work: {nearest}"
    )
