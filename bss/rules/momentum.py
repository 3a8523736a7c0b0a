"""Adam's first moment keeps its half-life as a part of the run.

Derived here, as arXiv 2507.07101, Section 4.3, has it of the second moment: at κ times the batch
β1' = β1^κ keeps the half-life in tokens, and over h times the tokens β1^(κ/h) keeps it as a part of
them, which is a part of the run's steps.
Golden: .9 at batch 4 is .430 at batch 32.
"""

from dataclasses import replace

from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """Beta1 to the power of κ over the ratio of budgets."""
    factor = ratio(reference, change) / change.horizon
    return replace(reference, beta1=None if reference.beta1 is None else reference.beta1**factor)


MOMENTUM = Scaling("derived here", scale)
