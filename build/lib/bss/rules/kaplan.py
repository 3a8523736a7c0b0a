"""Kaplan et al., "Scaling Laws for Neural Language Models", arXiv 2001.08361.

The critical batch follows the loss, not the model: B_crit = B_* / L^(1/α_B) tokens, α_B = .21
(Eq. 1.4 and 5.3, with B_* = 2.1e8 tokens of Table 5), loss in nats per token of WebText2, measured
on models of 3M and 85M. Golden: it doubles for every 13% decrease of the loss (caption of Fig. 10).

The rate of Eq. D.1 follows the model: .003239 − .0001395·ln N, N non-embedding, 768 to 1.5
billion. Golden: 2.4e-4 at N = 2.155e9, the line "OpenAI Law" of arXiv 2503.04715, Fig. 7.
"""

import math

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting


def critical_batch(setting: Setting) -> Hyperparameters:
    """The batch at which steps and tokens are each twice the fewest, at the expected loss."""
    assert setting.loss is not None  # the rule needs it
    return Hyperparameters(batch_tokens=2.1e8 / setting.loss ** (1 / 0.21))


def rate(setting: Setting) -> Hyperparameters:
    """The peak rate; none from N = 1.2e10, where the formula turns negative."""
    lr = 3.239e-3 - 1.395e-4 * math.log(setting.params)
    return Hyperparameters(lr=lr if lr > 0 else None)


KAPLAN = Rule(
    "arXiv 2001.08361, Eq. 1.4",
    critical_batch,
    batch="critical",
    fitted={"params": (3e6, 8.5e7)},
    needs=("loss",),
)
KAPLAN_RATE = Rule("arXiv 2001.08361, Eq. D.1", rate, batch=None, fitted={"params": (768, 1.5e9)})
