"""Bergsma et al., "Power Lines", arXiv 2505.13738.

The best batch is .0306·D^.383 sequences of 2048 tokens. The best weight decay keeps the AdamW
timescale B/(η·λ·D), as a share of the run, at 1.084·(D/N)^−.527; η is the rate that the hidden
matrices have, μP's factor of width included. AdamW under μP, linear decay to zero, SlimPajama, 111M
to 3.3B parameters; whether those count embeddings is not known here.
Golden: Table 1, 610M at 20 tokens per parameter, best batch 252; τ there is about .21.

Its law of the critical batch is left out: its coefficient could not be verified.
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting, tokens_of

_FITTED = {"params": (1.11e8, 3.3e9)}
_SEQ_LEN = 2048


def best_batch(setting: Setting) -> Hyperparameters:
    """The batch by the budget."""
    return Hyperparameters(batch_tokens=tokens_of(0.0306 * setting.tokens**0.383, _SEQ_LEN))


def timescale(setting: Setting) -> float:
    """The best B/(η·λ·D): the share of the run that the weights average over."""
    return 1.084 * (setting.tokens / setting.params) ** -0.527


def weight_decay(setting: Setting) -> Hyperparameters:
    """The decay at a rate and a batch; without one, at the best."""
    assert setting.lr is not None  # the rule needs it
    batch = setting.batch_tokens or best_batch(setting).batch_tokens
    assert batch is not None
    decay = batch / (setting.lr * setting.tokens * timescale(setting))
    return Hyperparameters(batch_tokens=batch, weight_decay=decay)


POWER_LINES = Rule("arXiv 2505.13738, B_opt", best_batch, fitted=_FITTED)
POWER_LINES_DECAY = Rule(
    "arXiv 2505.13738, tau_opt", weight_decay, batch=None, fitted=_FITTED, needs=("lr",)
)
