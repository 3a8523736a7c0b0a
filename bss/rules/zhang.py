"""Zhang et al., "How Does Critical Batch Size Scale in Pre-training?", arXiv 2410.21676.

The critical batch is 22.91·D^.47 sequences of 512 tokens, D in millions of tokens: there the steps
to a loss exceed those of linear scaling from 256 sequences by 20%. Fitted on five models of 85M to
1.2B, each on about 20 tokens a parameter; Adam, constant rate, averaged weights.
Golden: with D = 20·N it is the paper's law in N, 93.20·N^.47, N in millions, within 1%.
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting

_SEQ_LEN = 512


def law(setting: Setting) -> Hyperparameters:
    """The critical batch by the budget."""
    sequences = 22.91 * (setting.tokens / 1e6) ** 0.47
    return Hyperparameters(batch_tokens=sequences * _SEQ_LEN)


ZHANG = Rule(
    "arXiv 2410.21676, law in D",
    law,
    batch="critical",
    fitted={"params": (8.5e7, 1.21e9), "tokens": (1.741e9, 2.4576e10)},
)
