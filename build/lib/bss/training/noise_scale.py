"""The gradient noise scale of a run, from the buckets that its steps accumulate.

B_simple = tr Σ / |G|² (McCandlish et al., arXiv 1812.06162, appendix A.1) with both from unclipped
gradients: the squared norms of the buckets' and of their mean, which is the step's. Both estimates
are unbiased, and either may come out negative in one step, so numerator and denominator are
averaged over the tokens consumed, each on its own, and then divided. A step of one bucket tells
nothing. On several devices, which do not meet within a step, what is called a bucket here is one
device's share of one: there are more of them, smaller, and the estimates stay unbiased. All
arithmetic is float64 on the host, on numbers that a checkpoint's record holds.
"""

import math
from typing import NamedTuple


class NoiseAverages(NamedTuple):
    """Averages over tokens of tr Σ (of one sequence's gradient) and of |G|², both uncorrected.

    They start at zero with equal weights, so what they lack at the start cancels in the ratio.
    """

    trace: float = 0.0
    square: float = 0.0


def estimates(
    bucket_square: float, batch_square: float, bucket: int, buckets: int
) -> tuple[float, float]:
    """Unbiased tr Σ of the gradient of one sequence's mean loss, and |G|², from one step.

    Args:
        bucket_square: |G_bucket|², averaged over the step's buckets.
        batch_square: |G_batch|² of their mean.
        bucket: sequences in a bucket.
        buckets: how many there are, 2 or more.

    Examples:
        >>> estimates(5.0, 2.0, bucket=4, buckets=4)  # 1 + 16/4 and 1 + 16/16
        (16.0, 1.0)
    """
    excess = (bucket_square - batch_square) * buckets / (buckets - 1)
    return bucket * excess, batch_square - excess / buckets


def update(
    averages: NoiseAverages, trace: float, square: float, tokens: int, half_life: int
) -> NoiseAverages:
    """The averages after a step's tr Σ and |G|², by the tokens it consumed and a half-life."""
    share = -math.expm1(-math.log(2) * tokens / half_life)
    return NoiseAverages(
        averages.trace + share * (trace - averages.trace),
        averages.square + share * (square - averages.square),
    )


def noise_scale(averages: NoiseAverages) -> float | None:
    """B_simple in sequences; None where |G|² is not above zero: nothing measured yet, or noise."""
    return averages.trace / averages.square if averages.square > 0 else None
