"""The fields of named sizes, from seconds on a CPU to published models.

"85M" to "1.2B" are the models of Zhang et al., "How Does Critical Batch Size Scale in
Pre-training?" (2410.21676), as their repository configures them. They have RoPE, GELU, LayerNorm
with QK-norm, no biases, an untied head, an MLP of 4·d_model and the GPT-NeoX vocabulary of 50280.
The names are the paper's; `counts()` returns the exact sizes.

"qwen3-0.6B" and "qwen3-1.7B" are the dense models of Qwen3 (2505.09388, table 1), with the fields
of their released config.json. They have grouped queries, heads of 128 at every width, SwiGLU,
RMSNorm with QK-norm, tied matrices and no biases. "qwen3-30B-A3B" is its smaller mixture of experts
(table 2), untied.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from bss.errors import InputError


def _size(layers: int, d_model: int, heads: int, vocab_size: int, **choices: Any) -> dict[str, Any]:
    sizes = {"num_layers": layers, "d_model": d_model, "num_heads": heads, "d_ff": 4 * d_model}
    return {"vocab_size": vocab_size, **sizes, **choices}


BYTES = 256  # 0xFF, which UTF-8 never uses, ends a document
# On an H100, steps that compute activations again take 0.69 to 0.74 of the time.
_ACCELERATOR = {"dtype": "bfloat16", "scan_layers": True, "remat": True}
_QWEN3 = {"vocab_size": 151_936, "activation": "swiglu", "tied": True, "rope_theta": 1e6}
_QWEN3 |= {"num_heads": 16, "num_kv_heads": 8, "head_dim": 128, **_ACCELERATOR}
_QWEN3_EXPERTS = {**_QWEN3, "family": "mixture", "num_experts": 128, "top_k": 8}
_QWEN3_EXPERTS |= {"balance": 0.001, "num_heads": 32, "num_kv_heads": 4, "tied": False}
_PUBLISHED = {"vocab_size": 50_280, "activation": "gelu", "norm": "layer", **_ACCELERATOR}

# Each with the vocabulary it is usually trained on: bytes for the small ones, a BPE of the corpus
# for the middle, the paper's for the published. Those named layers x width fill in for laws in N;
# 4x16 is as large as pico.
SIZE_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "pico": _size(1, 32, 2, vocab_size=BYTES),
    "nano": _size(2, 64, 4, vocab_size=BYTES),
    "micro": _size(4, 128, 4, vocab_size=BYTES),
    "mini": _size(6, 256, 8, vocab_size=BYTES),
    "1x24": _size(1, 24, 2, vocab_size=BYTES),
    "1x48": _size(1, 48, 4, vocab_size=BYTES),
    "1x64": _size(1, 64, 4, vocab_size=BYTES),
    "1x72": _size(1, 72, 4, vocab_size=BYTES),
    "1x96": _size(1, 96, 4, vocab_size=BYTES),
    "1x128": _size(1, 128, 4, vocab_size=BYTES),
    "2x96": _size(2, 96, 4, vocab_size=BYTES),
    "2x128": _size(2, 128, 4, vocab_size=BYTES),
    "4x16": _size(4, 16, 2, vocab_size=BYTES),
    "10M": _size(6, 384, 6, vocab_size=8192, **_ACCELERATOR),
    "25M": _size(8, 512, 8, vocab_size=8192, **_ACCELERATOR),
    "49M": _size(10, 640, 10, vocab_size=8192, **_ACCELERATOR),
    "85M": _size(12, 768, 12, **_PUBLISHED),
    "151M": _size(12, 1024, 16, **_PUBLISHED),
    "302M": _size(24, 1024, 16, **_PUBLISHED),
    "604M": _size(12, 2048, 16, **_PUBLISHED),
    "1.2B": _size(24, 2048, 32, **_PUBLISHED),
    "qwen3-0.6B": {"num_layers": 28, "d_model": 1024, "d_ff": 3072, **_QWEN3},
    "qwen3-1.7B": {"num_layers": 28, "d_model": 2048, "d_ff": 6144, **_QWEN3},
    "qwen3-30B-A3B": {"num_layers": 48, "d_model": 2048, "d_ff": 768, **_QWEN3_EXPERTS},
}


def size(name: str) -> Mapping[str, Any]:
    """Return the fields of a named size.

    Raises:
        InputError: If no size has this name.
    """
    if name not in SIZE_FIELDS:
        close = difflib.get_close_matches(name, SIZE_FIELDS, n=1, cutoff=0.5)
        suggestion = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"model={name!r}: expected one of {', '.join(SIZE_FIELDS)}{suggestion}")
    return SIZE_FIELDS[name]
