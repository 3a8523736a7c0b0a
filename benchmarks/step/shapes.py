"""The shapes whose steps are timed: a size, its sequences, a batch; and their tokens."""

from dataclasses import dataclass, replace

import numpy as np

from bss.errors import InputError
from bss.models import sizes
from bss.models.size_fields import BYTES
from bss.models.transformer import TransformerConfig

# AdamW of every variant; norms are not decayed.
LR = 1e-3
BETAS = (0.9, 0.95)
EPS = 1e-8
DECAY = 0.1
CLIP = 1.0

POOL = 2**15
"""Tokens of an eighth of what is trained on."""


@dataclass(frozen=True)
class Shape:
    """The model and batch of a step.

    Attributes:
        model: a named size.
        seq_len: targets of a sequence.
        batch: sequences of a step.
        several: steps of a dispatch that has several; fewer where one takes long.
        gpu: Whether it is measured on a GPU in bfloat16. Default: on CPU cores in float32.
    """

    model: str
    seq_len: int
    batch: int
    several: int = 8
    gpu: bool = False

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.seq_len

    @property
    def config(self) -> TransformerConfig:
        """The model: on CPUs in float32, with bytes as tokens and no recomputation."""
        model = sizes.named(self.model)
        if self.gpu:
            return model
        return replace(model, vocab_size=BYTES, dtype="float32", scan_layers=False, remat=False)


SHAPES = {
    "d 64 B 8": Shape("nano", 64, 8),
    "d 64 B 1": Shape("nano", 64, 1),
    "d 128 B 32": Shape("micro", 128, 32),
    "d 256 B 16": Shape("mini", 256, 16, several=2),
    "d 512 B 8": Shape("25M", 256, 8, several=1),
    "85M": Shape("85M", 1024, 32, gpu=True),
    "302M": Shape("302M", 1024, 32, gpu=True),
}
TINY = {"pico": Shape("pico", 16, 2)}
"""For tests."""


def named(text: str) -> list[str]:
    """Return the shapes of a list with commas; all but the tiny of "".

    Raises:
        InputError: a name that is none of them.
    """
    names = [name.strip() for name in text.split(",") if name.strip()] or [*SHAPES]
    for name in names:
        if name not in SHAPES | TINY:
            raise InputError(f"--shapes: {name!r} is none of {', '.join(SHAPES)}")
    return names


def batches(shape: Shape, vocab: int) -> np.ndarray:
    """Return the batches of consecutive steps, int32 [P, B, T+1]; token frequencies follow Zipf.

    They are too many to be learned by heart: numbers near zero would slow some variants.
    """
    often = 1 / np.arange(1, vocab + 1)
    size = (8 * max(POOL // shape.tokens, 1), shape.batch, shape.seq_len + 1)
    return np.random.default_rng(0).choice(vocab, size, p=often / often.sum()).astype(np.int32)
