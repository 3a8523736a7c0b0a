"""Models of the papers' sizes, to compile for machines that could train them.

    bss compile --config configs/papers.py:h100 --on h100:1

| size   | machine                      | models                                       |
|--------|------------------------------|----------------------------------------------|
| h100   | one H100                     | Qwen3's dense ones                           |
| v5e    | eight TPU v5e, weights split | the same                                     |
| h100x8 | eight H100, weights split    | Qwen3's mixture of experts: it does not fit  |
| v5p    | 64 TPU v5p, weights split    | the same                                     |

Sequences of 4096 and the vocabularies of the released models; nothing was trained at these sizes.
"""

from typing import Any

from configs.overlays import SETUP, sized

DENSE = ("qwen3-0.6B", "qwen3-1.7B")
MIXTURE = ("qwen3-30B-A3B",)


def compiled(bucket: int, models: tuple[str, ...], **engine: Any) -> dict[str, Any]:
    """Models with one micro-batch size, in sequences."""
    return {
        "setup.model": models[0],
        "setup.engine": {"buckets": (bucket,), **engine},
        "models": models,
    }


BASE = {
    "setup": SETUP,
    "setup.text": {"tokenizer": "qwen3/tokenizer.json", "seq_len": 4096},
    "setup.averages": (),
    "models": (),
}
SIZES = {
    "h100": compiled(4, DENSE),
    "v5e": compiled(8, DENSE, fsdp=8),
    "h100x8": compiled(8, MIXTURE, fsdp=8),
    "v5p": compiled(64, MIXTURE, fsdp=64),
}

get_config = sized(BASE, SIZES, default="h100")
