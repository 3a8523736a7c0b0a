"""Named sizes as models, and their table; their fields are in `transformer/sizes.py`."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from bss.errors import check
from bss.models import FAMILIES
from bss.models.transformer import sizes
from bss.models.transformer.config import TransformerConfig
from bss.models.transformer.sizes import size


def _made(fields: Mapping[str, Any]) -> TransformerConfig:
    family = FAMILIES[fields.get("family", "transformer")]
    return cast(TransformerConfig, family(**family.decoded(dict(fields))))


SIZES: MappingProxyType[str, TransformerConfig] = MappingProxyType(
    {name: _made(fields) for name, fields in sizes.SIZES.items()}
)


def named(name: str, vocab_size: int | None = None) -> TransformerConfig:
    """The model of that name, with `vocab_size` tokens or with its usual vocabulary.

    >>> named("nano", vocab_size=1024).vocab_size
    1024
    """
    model = _made(size(name))
    return model if vocab_size is None else replace(model, vocab_size=vocab_size)


def table(seq_len: int = 512, vocab_size: int | None = None) -> list[dict[str, Any]]:
    """Every named size, counted at sequences of `seq_len` and its usual or the given vocabulary.

    FLOPs are for training, per token.
    """
    check(seq_len >= 1, "seq_len", seq_len, "a positive number of tokens")
    models = {name: named(name, vocab_size) for name in SIZES}
    return [
        {
            "name": name,
            "layers": model.num_layers,
            "d_model": model.d_model,
            "heads": model.num_heads,
            "vocab_size": model.vocab_size,
            "non_embedding": model.counts().non_embedding,
            "active": model.counts().active,
            "total": model.counts().total,
            "flops_per_token": model.training_flops_per_token(seq_len),
        }
        for name, model in models.items()
    ]
