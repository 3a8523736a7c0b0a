"""The rule by which marin sizes its isoFLOP sweeps, repository marin-community/marin.

experiments/scaling_law_sweeps/c_adamc.py ("the original Marin 2025 heuristic"): as many sequences
of 4096 as give 2^16 steps, up to a power of two, halved while the rate .33·√B/d_model exceeds .01;
beta2 = max(.95, .98^(B/128)), beta1 .95, epsilon 1e-15, weight decay .1; for C-AdamC, cautious
with corrected weight decay. It trains none below 8 sequences or above 8192, and says nothing there.
Used at 1e18 to 1e20 FLOPs and widths of 512 to 4096. Golden: the repository's own snapshot of its
configs (B 32, d 512: rate .003646, beta2 .994962).
"""

import math

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting

_SEQ_LEN, _STEPS, _LARGEST_RATE = 4096, 2**16, 0.01
_LEAST, _MOST = 8, 8192  # sequences


def law(setting: Setting) -> Hyperparameters:
    """Batch by the budget, all else by the batch and the width."""
    assert setting.d_model is not None  # the rule needs it
    exact = setting.tokens / _STEPS / _SEQ_LEN
    sequences = 2 ** max(0, math.ceil(math.log2(exact)))
    while sequences > 1 and _rate(sequences, setting.d_model) > _LARGEST_RATE:
        sequences //= 2
    if not _LEAST <= sequences <= _MOST:
        return Hyperparameters()
    return Hyperparameters(
        batch_tokens=sequences * _SEQ_LEN,
        lr=_rate(sequences, setting.d_model),
        beta1=0.95,
        beta2=max(0.95, 0.98 ** (sequences / 128)),
        epsilon=1e-15,
        weight_decay=0.1,
    )


def _rate(sequences: int, d_model: int) -> float:
    return 0.33 * math.sqrt(sequences) / d_model


MARIN = Rule(
    "marin-community/marin, c_adamc.py",
    law,
    fitted={"compute": (1e18, 1e20), "d_model": (512, 4096)},
    needs=("d_model",),
)
