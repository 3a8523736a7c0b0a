"""Adam's second moment keeps its half-life in tokens.

Marek et al., "Small Batch Size Training for Language Models", arXiv 2507.07101, Section 4.3:
β2' = β2^(B'/B), β1 stays. Measured at batches of 1 to 4096 sequences of 512; the rate, of which the
rule does not speak, grew more slowly there than √B, 3 times from batch 1 to 1024.
Golden: .95 at batch 512 is .9999 at batch 1 (Fig. 1).
"""

from dataclasses import replace

from bss.rules.rule import Change, Scaling, ratio
from bss.rules.setting import Hyperparameters


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """Beta2 to the power of κ."""
    beta2 = reference.beta2
    return replace(reference, beta2=None if beta2 is None else beta2 ** ratio(reference, change))


HALF_LIFE = Scaling("arXiv 2507.07101, Sec. 4.3", scale)
