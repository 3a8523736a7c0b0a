"""What nanochat does with the batch, repository karpathy/nanochat.

scripts/base_train.py: the batch is 2^19 tokens at the tokens of its model of 12 layers, elsewhere
2^19·(D/D_12)^.383 (the power of arXiv 2505.13738), rounded to a power of two. D_12 is 10.5 times
84,935,808 parameters of matrices and 25,165,824 of the head, by the counts of dev/LOG.md. Rates are
scaled by √κ and weight decay by √κ / h, with κ and h the ratios of batches and of budgets, which
keeps B/(η·λ·D). Muon for the matrices; that their rule is AdamW's is said to be an assumption.
Golden: the table of batches in dev/LOG.md, 2026-02-05, 8 to 50 layers, .44B to 65.6B tokens, which
are 17.5 to 10.7 per parameter of the matrices. At other ratios nanochat takes the same batch for
the same model, so what is said of the budget is said at these.
"""

import math

from bss.rules.rule import Change, Rule, Scaling, ratio
from bss.rules.setting import Hyperparameters, Setting

_BATCH, _TOKENS = 2**19, 10.5 * (84_935_808 + 25_165_824)


def law(setting: Setting) -> Hyperparameters:
    """The batch by the budget."""
    batch = _BATCH * (setting.tokens / _TOKENS) ** 0.383
    return Hyperparameters(batch_tokens=2 ** round(math.log2(batch)))


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """Rate and weight decay at another batch and budget."""
    root = math.sqrt(ratio(reference, change))
    return reference.times(lr=root, weight_decay=root / change.horizon)


NANOCHAT = Rule(
    "karpathy/nanochat, base_train.py",
    law,
    fitted={"tokens": (4.4e8, 6.56e10), "tokens_per_param": (10.6, 17.6)},
)
NANOCHAT_SCALING = Scaling("karpathy/nanochat, base_train.py", scale)
