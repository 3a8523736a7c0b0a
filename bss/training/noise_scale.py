"""The gradient noise scale, from the micro-batches of a step.

B_simple = tr Σ / |G|² (McCandlish et al., 1812.06162), in sequences. Σ is the covariance of one
sequence's gradient and G the mean gradient, both unclipped.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from bss.errors import InputError

Scalar = Any
"""A float or a traced scalar."""


@dataclass(frozen=True)
class NoiseScale:
    """Averages of the noise scale's numerator and denominator over tokens.

    Either estimate of one step may be negative, so both are averaged and then divided. The averages
    start at zero with equal weights, so their bias cancels in the ratio.

    Attributes:
        half_life: Of the averages, in tokens.
        trace, square: Averages of the estimates of tr Σ and |G|².

    Raises:
        InputError: If the half-life is not positive.

    Examples:
        >>> noise = NoiseScale(half_life=1_000_000)
        >>> noise = noise.update(trace=16.0, square=1.0, tokens=65_536)
        >>> round(noise.value, 6)
        16.0
    """

    half_life: int
    trace: float = 0.0
    square: float = 0.0

    def __post_init__(self) -> None:
        if not self.half_life > 0:
            raise InputError(f"half_life: {self.half_life} is not positive; give it in tokens")

    def update(self, trace: float, square: float, tokens: int) -> Self:
        """Return the averages with the estimates of a step added.

        A step with one micro-batch has no estimates (NaN) and changes nothing.

        Args:
            trace: Estimate of tr Σ, e.g. `GradStats.noise_trace`.
            square: Estimate of |G|², e.g. `GradStats.noise_square`.
            tokens: Tokens of the step.
        """
        if math.isnan(trace) or math.isnan(square):
            return self
        rate = noise_rate(tokens, self.half_life)
        return replace(
            self,
            trace=self.trace + rate * (float(trace) - self.trace),
            square=self.square + rate * (float(square) - self.square),
        )

    @property
    def value(self) -> float | None:
        """B_simple in sequences; None if |G|² is not above zero."""
        return self.trace / self.square if self.square > 0 else None


def noise_estimates(
    bucket_square: Scalar, batch_square: Scalar, bucket: int, buckets: Scalar
) -> tuple[Scalar, Scalar]:
    """Return unbiased estimates of tr Σ and |G|² from the micro-batches of one step.

    Σ is the covariance of one sequence's gradient and G the mean gradient, both unclipped. The
    gradient noise scale is B_simple = tr Σ / |G|² (McCandlish et al., 1812.06162, appendix A.1).
    Either estimate may be negative in one step, so both are averaged over tokens and then divided.
    The averages start at zero with equal weights, so their bias cancels in the ratio.
    On several devices without FSDP, each device's share of a micro-batch counts as one.

    Args:
        bucket_square: |G_bucket|², averaged over the step's micro-batches.
        batch_square: |G_batch|² of their mean.
        bucket: sequences in a micro-batch.
        buckets: number of micro-batches, 2 or more.

    Examples:
        >>> noise_estimates(5.0, 2.0, bucket=4, buckets=4)  # 1 + 16/4 and 1 + 16/16
        (16.0, 1.0)
    """
    excess = (bucket_square - batch_square) * buckets / (buckets - 1)
    return bucket * excess, batch_square - excess / buckets


def noise_rate(tokens: int, half_life: int) -> float:
    """Return the weight of a step of `tokens` tokens in averages of a half-life in tokens."""
    return -math.expm1(-math.log(2) * tokens / half_life)
