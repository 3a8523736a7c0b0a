"""Weight decay that keeps AdamW's timescale as a share of the run.

Wang and Aitchison, "How to set AdamW's weight decay as you scale model and dataset size", arXiv
2405.13698: B/(η·λ·D) stays. With the rate kept, λ is proportional to the batch; arXiv 2505.13738
confirms it below the critical batch. Golden: the latter finds B/(η·λ·D) constant, about .21, from
63 to 2016 sequences at a fixed rate, so that λ grows 32 times.
"""

from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """Weight decay times κ over the ratio of budgets, at the same rate."""
    factor = ratio(reference, change) / change.horizon
    return reference.times(weight_decay=factor)


TIMESCALE = Scaling("arXiv 2405.13698", scale)
