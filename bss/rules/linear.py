"""The rate grows as the batch.

Goyal et al., "Accurate, Large Minibatch SGD", arXiv 1706.02677, Section 2.1: when the minibatch is
multiplied by k, multiply the learning rate by k, and keep all else; SGD with momentum on ImageNet,
up to 8192 images. Golden: .1 at 256 becomes .1·32 at 8192 (Table 2).
"""

from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """The rate times κ."""
    return reference.times(lr=ratio(reference, change))


LINEAR = Scaling("arXiv 1706.02677, Sec. 2.1", scale)
