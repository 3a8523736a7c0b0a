"""Bergsma et al., "Power Lines", arXiv 2505.13738.

Its fits are those of Fig. 1. The best batch is .0306·D^.383 sequences of 2048 tokens. The critical
one is .0471·D^.462 (Eq. 7), D the tokens that the loss takes at small batches; there it takes twice
as many (Eq. 6). The best weight decay keeps the AdamW timescale B/(η·λ·D), as a share of the run,
at 1.084·(D/N)^−.527; η is the rate that the hidden matrices have, μP's factor of width included.
AdamW under μP, linear decay to zero, SlimPajama, 111M to 3.3B parameters, 20 to 1280 tokens each;
whether those parameters count embeddings is not known here.
Golden: Table 1, 610M at 20 tokens per parameter, best batch 252; the timescale there is about .21
up to batch 2016 and drifts beyond the critical one; 4032 is the next.
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting

_FITTED = {"params": (1.11e8, 3.3e9), "tokens_per_param": (20, 1280)}
_SEQ_LEN = 2048


def best_batch(setting: Setting) -> Hyperparameters:
    """The batch by the budget."""
    return Hyperparameters(batch_tokens=0.0306 * setting.tokens**0.383 * _SEQ_LEN)


def critical_batch(setting: Setting) -> Hyperparameters:
    """The batch at which the budget's loss takes twice the budget."""
    return Hyperparameters(batch_tokens=0.0471 * setting.tokens**0.462 * _SEQ_LEN)


def timescale(setting: Setting) -> float:
    """The best B/(η·λ·D): the share of the run that the weights average over."""
    return 1.084 * setting.tokens_per_param**-0.527


def weight_decay(setting: Setting) -> Hyperparameters:
    """The decay at a rate and a batch; without one, at the best."""
    assert setting.lr is not None  # the rule needs it
    batch = setting.batch_tokens or best_batch(setting).batch_tokens
    assert batch is not None
    decay = batch / (setting.lr * setting.tokens * timescale(setting))
    return Hyperparameters(batch_tokens=batch, weight_decay=decay)


POWER_LINES = Rule("arXiv 2505.13738, Fig. 1", best_batch, fitted=_FITTED)
POWER_LINES_CRITICAL = Rule(
    "arXiv 2505.13738, Eq. 7", critical_batch, batch="critical", fitted=_FITTED
)
POWER_LINES_DECAY = Rule(
    "arXiv 2505.13738, Fig. 1", weight_decay, batch=None, fitted=_FITTED, needs=("lr",)
)
