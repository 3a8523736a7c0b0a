"""Hu et al., "MiniCPM", arXiv 2404.06395, Section 3.2.

B = 1.21e9 / L^6.24 tokens, L the loss on C4 in nats per token, on models of 9M, 30M and 170M; it
minimises the tokens to a loss. Golden: the line of Fig. 2, ln B = 20.91 − 6.24·ln L.
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting


def law(setting: Setting) -> Hyperparameters:
    """The batch by the expected loss."""
    assert setting.loss is not None  # the rule needs it
    return Hyperparameters(batch_tokens=1.21e9 / setting.loss**6.24)


MINICPM = Rule("arXiv 2404.06395, Sec. 3.2", law, fitted={"params": (9e6, 1.7e8)}, needs=("loss",))
