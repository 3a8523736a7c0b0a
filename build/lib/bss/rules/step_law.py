"""Li et al., "Predictable Scale, Part I: Step Law", arXiv 2503.04715.

B = .58·D^.571 tokens and η = 1.79·N^−.713·D^.307, N non-embedding, fitted on 59M to 1.07B
parameters and 2B to 100B tokens: AdamW, cosine to a fixed final rate of 1e-5. That the best rate
grows with D holds where the batch grows along. Golden: the star of Fig. 7 at N = 2.155e9, D = 8e9,
rate 4.4e-4 and batch 2.6e5.
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting


def law(setting: Setting) -> Hyperparameters:
    """Batch by the budget, rate by model and budget."""
    return Hyperparameters(
        0.58 * setting.tokens**0.571, 1.79 * setting.params**-0.713 * setting.tokens**0.307
    )


STEP_LAW = Rule(
    "arXiv 2503.04715",
    law,
    fitted={"params": (5.9e7, 1.074e9), "tokens": (2e9, 1e11)},
)
