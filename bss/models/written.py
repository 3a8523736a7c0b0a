"""A model as configs, axes and command lines write it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bss.errors import InputError
from bss.models.family import ModelFamily
from bss.models.sizes import SIZES
from bss.values import from_dict, to_dict

Written = str | Mapping[str, Any] | ModelFamily
"""A named size, or one with fields replaced, {"name": "nano", "num_layers": 3}; a family and its
fields, {"family": "module:FAMILY", "width": 8}, or its name alone; either as JSON text; a value."""

_BYTES = 256


def group_of(model: Any, vocab_size: int | None = None) -> dict[str, Any]:
    """A model as a group of fields; one that says no vocabulary has `vocab_size` tokens, if given.

    Examples:
        >>> group_of("nano", 300)
        {'vocab_size': 300, 'name': 'nano'}
    """
    if isinstance(model, ModelFamily):
        return to_dict(model)
    group = _read(model) if isinstance(model, str) else model
    if not isinstance(group, Mapping):
        raise InputError(
            f"model is {model!r}; expected a named size, "
            'or {"name": SIZE, FIELD: ...}, or {"family": "module:FAMILY", FIELD: ...}'
        )
    return {**({} if vocab_size is None else {"vocab_size": vocab_size}), **group}


def model_of(model: Written, vocab_size: int | None = None) -> ModelFamily:
    """The model, with `vocab_size` tokens; else with its own, or those of bytes.

    Raises:
        InputError: an unknown size, family or field, and what the family refuses.

    Examples:
        >>> model_of({"name": "nano", "num_layers": 3}).label
        '3x64'
    """
    if not isinstance(model, ModelFamily):
        group = group_of(model)
        a_size = "name" in group and "family" not in group
        model = from_dict(ModelFamily, group if a_size else group_of(group, _BYTES), "model.")
    return model if vocab_size is None else replace(model, vocab_size=vocab_size)


def name_of(model: Written) -> str:
    """What people call a model: a named size by its name, another as in tables."""
    return model if isinstance(model, str) and model in SIZES else model_of(model).label


def _read(text: str) -> Any:
    if not text.startswith("{"):
        return {"family" if ":" in text else "name": text}
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"model is {text!r}, which is no JSON ({error.msg}); mend it") from None
