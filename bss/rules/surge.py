"""Li et al., "Surge Phenomenon in Optimal Learning Rate and Batch Size Scaling", arXiv 2405.14578.

Eq. 2, for Adam seen as descent by the sign: ε(B) = 2·ε_max / (√(B_noise/B) + √(B/B_noise)), which
rises as √B, and falls beyond the noise scale. It holds for batches far below (Theorem 3) that at
which a gradient's sign is sure. Golden: Eq. 15, the largest rate is at B = B_noise; Eq. 4, far
below it the rule is √B.
"""

import math

from bss.rules.rule import Change, Scaling
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """The rate, rising up to the noise scale and falling beyond it."""
    assert reference.batch_tokens is not None and change.noise_scale is not None
    before = _spread(reference.batch_tokens / change.noise_scale)
    after = _spread(change.batch_tokens / change.noise_scale)
    return reference.times(lr=before / after)


def _spread(share: float) -> float:
    return math.sqrt(1 / share) + math.sqrt(share)


SURGE = Scaling("arXiv 2405.14578, Eq. 2", scale, needs=("noise_scale",))
