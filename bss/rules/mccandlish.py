"""McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv 1812.06162.

The critical batch is about the gradient noise scale. The best rate of SGD is
ε(B) = ε_max / (1 + B_noise/B) (Eq. 2.6).
Golden: at B = B_noise it is half of that at large batches.
"""

from bss.rules.rule import Change, Rule, Scaling
from bss.rules.setting import Hyperparameters, Setting


def critical_batch(setting: Setting) -> Hyperparameters:
    """The noise scale, as a batch."""
    return Hyperparameters(batch_tokens=setting.noise_scale)


def scale(reference: Hyperparameters, change: Change) -> Hyperparameters:
    """The rate by how much of it noise takes at each of the two batches."""
    assert reference.batch_tokens is not None and change.noise_scale is not None
    before = 1 + change.noise_scale / reference.batch_tokens
    after = 1 + change.noise_scale / change.batch_tokens
    return reference.times(lr=before / after)


MCCANDLISH = Rule("arXiv 1812.06162", critical_batch, batch="critical", needs=("noise_scale",))
NOISE_SCALE = Scaling("arXiv 1812.06162, Eq. 2.6", scale, needs=("noise_scale",))
