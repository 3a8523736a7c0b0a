"""The rate grows as the square root of the batch.

Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv 1404.5997,
page 5: times √k to keep the variance of the gradient's expectation. Golden: .1·√32 at 32 times
the batch, as arXiv 1706.02677 prints in Table 2 beside the linear rule, which is better there.
"""

import math

from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """The rate times √κ."""
    return reference.times(lr=math.sqrt(ratio(reference, change)))


SQUARE_ROOT = Scaling("arXiv 1404.5997, p. 5", scale)
