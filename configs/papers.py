"""The papers' sizes on machines that could train them, to be compiled: results/compiled.json.

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

from configs.overlays import H100, SETUP, sized

DENSE, MIXTURE = ("qwen3-0.6B", "qwen3-1.7B"), ("qwen3-30B-A3B",)


def on(machine: str, bucket: int, models: tuple[str, ...], **engine: Any) -> dict[str, Any]:
    """Models on a machine, in buckets of so many sequences."""
    return {
        "setup.model": models[0],
        "setup.engine": {"machine": machine, "buckets": (bucket,), **engine},
        "models": models,
    }


BASE = {
    "setup": SETUP,
    "setup.text": {"tokenizer": "qwen3/tokenizer.json", "seq_len": 4096},
    "setup.averages": (),
    "models": (),
}
SIZES = {
    "h100": on(H100, 4, DENSE),
    "v5e": on("v5e:2x4", 8, DENSE, fsdp=8),
    "h100x8": on("h100:8", 8, MIXTURE, fsdp=8),
    "v5p": on("v5p:4x4x4", 64, MIXTURE, fsdp=64),
}

get_config = sized(BASE, SIZES, default="h100")
