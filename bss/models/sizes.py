"""Models by name: named sizes, from seconds on a CPU to published models, and models in configs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from bss.errors import InputError, check
from bss.models.base import FAMILIES, ModelFamily
from bss.models.size_fields import BYTES, SIZE_FIELDS, size
from bss.models.transformer import TransformerConfig

ModelSpec = str | Mapping[str, Any] | ModelFamily
"""A model: a named size, or one with fields replaced, {"name": "nano", "num_layers": 3}; a family
with its fields, {"family": "module:FAMILY", "width": 8}, or its name; JSON text; or a value."""


def _make(fields: Mapping[str, Any]) -> TransformerConfig:
    family = FAMILIES[fields.get("family", "transformer")]
    return cast(TransformerConfig, family(**family.decoded(dict(fields))))


SIZES: Mapping[str, TransformerConfig] = {
    name: _make(fields) for name, fields in SIZE_FIELDS.items()
}


def named(name: str, vocab_size: int | None = None) -> TransformerConfig:
    """Return the model of that name, with `vocab_size` tokens or with its usual vocabulary.

    >>> named("nano", vocab_size=1024).vocab_size
    1024
    """
    model = _make(size(name))
    return model if vocab_size is None else replace(model, vocab_size=vocab_size)


def table(seq_len: int = 512, vocab_size: int | None = None) -> list[dict[str, Any]]:
    """Return one row per named size, with its usual or the given vocabulary.

    FLOPs are for training, per token, in sequences of `seq_len`.
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


def group_of(model: Any, vocab_size: int | None = None) -> dict[str, Any]:
    """Return a model as a dict of fields; `vocab_size`, if given, applies if the model has none.

    Examples:
        >>> group_of("nano", 300)
        {'vocab_size': 300, 'name': 'nano'}
    """
    if isinstance(model, ModelFamily):
        from bss.values import to_dict  # which imports NumPy

        return to_dict(model)
    group = _read(model) if isinstance(model, str) else model
    if not isinstance(group, Mapping):
        raise InputError(
            f"model is {model!r}; expected a named size, "
            'or {"name": SIZE, FIELD: ...}, or {"family": "module:FAMILY", FIELD: ...}'
        )
    return {**({} if vocab_size is None else {"vocab_size": vocab_size}), **group}


def model_of(model: ModelSpec, vocab_size: int | None = None) -> ModelFamily:
    """Return the model, with `vocab_size` tokens; by default its own vocabulary, or bytes.

    Raises:
        InputError: If the size, family or a field is unknown, or the family refuses a value.

    Examples:
        >>> model_of({"name": "nano", "num_layers": 3}).label
        '3x64'
    """
    if not isinstance(model, ModelFamily):
        from bss.values import from_dict

        group = group_of(model)
        a_size = "name" in group and "family" not in group
        model = from_dict(ModelFamily, group if a_size else group_of(group, BYTES), "model.")
    return model if vocab_size is None else replace(model, vocab_size=vocab_size)


def name_of(model: ModelSpec) -> str:
    """Return the usual name of a model: the named size, or its label in tables."""
    return model if isinstance(model, str) and model in SIZES else model_of(model).label


def _read(text: str) -> Any:
    if not text.startswith("{"):
        return {"family" if ":" in text else "name": text}
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"model: {text!r} is not JSON ({error.msg}); correct it") from None
