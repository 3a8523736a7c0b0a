"""The rate follows batch and budget.

Filatov et al., "Optimal Scaling Needs Optimal Norm", arXiv 2510.03871, Fig. 3b: the best rate goes
as B^.62·D^−.56: Scion without momentum or weight decay, a constant rate, 69M parameters with
embeddings, 32 to 2048 sequences of 4096, 2.1B to 137B tokens; said to agree with Adam's. Its best
batch grows as D^.45, a power without a constant, so it is no rule here.
Golden: along that batch the rate falls as D^−.28 (Eq. 10).
"""

from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """The rate times κ^.62, over the ratio of budgets to .56."""
    factor = ratio(reference, change) ** 0.62 * change.horizon**-0.56
    return reference.times(lr=factor)


FILATOV = Scaling("arXiv 2510.03871, Fig. 3b", scale)
