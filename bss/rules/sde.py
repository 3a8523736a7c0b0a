"""Adam's settings that keep its stochastic differential equation.

Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287,
the square root scaling rule: at κ times the batch, η·√κ, 1 − κ·(1 − β) for both betas, ε/√κ. It
holds for κ·(1 − β) well below 1. The paper prints no worked number; the test has the rule's own.
"""

import math
from dataclasses import replace

from bss.errors import InputError
from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """Rate, betas and epsilon at κ times the batch.

    Raises:
        InputError: a beta would be negative.
    """
    factor = ratio(reference, change)
    return replace(
        reference.times(lr=math.sqrt(factor), epsilon=1 / math.sqrt(factor)),
        beta1=_beta("beta1", reference.beta1, factor),
        beta2=_beta("beta2", reference.beta2, factor),
    )


def _beta(name: str, beta: float | None, factor: float) -> float | None:
    if beta is None:
        return None
    if factor * (1 - beta) > 1:
        raise InputError(
            f"{name}: {beta:g} has no value at {factor:.3g} times the batch; the rule holds up to "
            f"{1 / (1 - beta):.3g} times"
        )
    return 1 - factor * (1 - beta)


SDE = Scaling("arXiv 2205.10287, square root scaling rule", scale)
