"""Named sizes, from seconds on a CPU to the published critical-batch set-up.

"85M" to "1.2B" are the models of Zhang et al., "How Does Critical Batch Size Scale in
Pre-training?" (2410.21676), as their repository configures them: RoPE, GELU, LayerNorm with
QK-norm, no biases, untied, MLP of 4·d_model, the GPT-NeoX vocabulary of 50280. They are named by
the paper; `counts()` tells their exact sizes.
"""

import dataclasses
import difflib
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bss.errors import InputError
from bss.models.transformer.config import TransformerConfig


def _size(
    layers: int, d_model: int, heads: int, vocab_size: int, **choices: Any
) -> TransformerConfig:
    return TransformerConfig(vocab_size, layers, d_model, heads, d_ff=4 * d_model, **choices)


_BYTES = 256  # 0xFF, which UTF-8 never uses, ends a document
# On an H100, steps that compute activations again take 0.69 to 0.74 of the time.
_ACCELERATOR = {"dtype": "bfloat16", "scan_layers": True, "remat": True}
_PUBLISHED = {"vocab_size": 50_280, "activation": "gelu", "norm": "layer", **_ACCELERATOR}

# Each with the vocabulary it is usually trained on: bytes for the small ones, a BPE of the corpus
# for the middle, the paper's for the published. Those named layers x width fill in for laws in N;
# 4x16 is as large as pico.
SIZES: MappingProxyType[str, TransformerConfig] = MappingProxyType(
    {
        "pico": _size(1, 32, 2, vocab_size=_BYTES),
        "nano": _size(2, 64, 4, vocab_size=_BYTES),
        "micro": _size(4, 128, 4, vocab_size=_BYTES),
        "mini": _size(6, 256, 8, vocab_size=_BYTES),
        "1x24": _size(1, 24, 2, vocab_size=_BYTES),
        "1x48": _size(1, 48, 4, vocab_size=_BYTES),
        "1x64": _size(1, 64, 4, vocab_size=_BYTES),
        "1x72": _size(1, 72, 4, vocab_size=_BYTES),
        "2x96": _size(2, 96, 4, vocab_size=_BYTES),
        "2x128": _size(2, 128, 4, vocab_size=_BYTES),
        "4x16": _size(4, 16, 2, vocab_size=_BYTES),
        "10M": _size(6, 384, 6, vocab_size=8192, **_ACCELERATOR),
        "25M": _size(8, 512, 8, vocab_size=8192, **_ACCELERATOR),
        "49M": _size(10, 640, 10, vocab_size=8192, **_ACCELERATOR),
        "85M": _size(12, 768, 12, **_PUBLISHED),
        "151M": _size(12, 1024, 16, **_PUBLISHED),
        "302M": _size(24, 1024, 16, **_PUBLISHED),
        "604M": _size(12, 2048, 16, **_PUBLISHED),
        "1.2B": _size(24, 2048, 32, **_PUBLISHED),
    }
)


@dataclass(frozen=True)
class SizeRow:
    """One line of the table of sizes; FLOPs are for training, per token."""

    name: str
    layers: int
    d_model: int
    heads: int
    vocab_size: int
    non_embedding: int
    total: int
    flops_per_token: int


def named(name: str, vocab_size: int | None = None) -> TransformerConfig:
    """The model of that name, with `vocab_size` tokens or with its usual vocabulary.

    >>> named("nano", vocab_size=1024).vocab_size
    1024
    """
    if name not in SIZES:
        close = difflib.get_close_matches(name, SIZES, n=1, cutoff=0.5)
        suggestion = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"model={name!r}: expected one of {', '.join(SIZES)}{suggestion}")
    size = SIZES[name]
    return size if vocab_size is None else dataclasses.replace(size, vocab_size=vocab_size)


def table(seq_len: int = 512, vocab_size: int | None = None) -> list[SizeRow]:
    """Every named size, counted at sequences of `seq_len` and its usual or the given vocabulary."""
    if seq_len < 1:
        raise InputError(f"seq_len={seq_len}: expected a positive number of tokens")
    return [_row(name, named(name, vocab_size), seq_len) for name in SIZES]


def _row(name: str, model: TransformerConfig, seq_len: int) -> SizeRow:
    counts, flops = model.counts(), model.training_flops_per_token(seq_len)
    shape = (model.num_layers, model.d_model, model.num_heads, model.vocab_size)
    return SizeRow(name, *shape, counts.non_embedding, counts.total, flops)
