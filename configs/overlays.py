"""A config at several sizes: one base, and what each size has in place of it."""

import functools
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict


def at_size(
    size: str, base: Mapping[str, Any], overlays: Mapping[str, Mapping[str, Any]]
) -> ConfigDict:
    """The base with the overlay of a size.

    Args:
        size: its name.
        base: nested fields; `{size}` in their texts stands for the name.
        overlays: by size, new values by dotted path; a group of fields is merged.

    Raises:
        ValueError: there is no such size.

    Examples:
        >>> base = {"results": "runs/{size}", "setup": {"model": "nano"}}
        >>> at_size("smoke", base, {"smoke": {"setup.model": "pico"}}).to_dict()
        {'results': 'runs/smoke', 'setup': {'model': 'pico'}}
    """
    if size not in overlays:
        raise ValueError(f"size {size!r}: expected one of {', '.join(overlays)}")
    config = ConfigDict(_named(base, size))
    for path, value in overlays[size].items():
        config.update(
            functools.reduce(lambda inner, key: {key: inner}, path.split(".")[::-1], value)
        )
    return config


def _named(value: Any, size: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _named(entry, size) for key, entry in value.items()}
    return value.format(size=size) if isinstance(value, str) else value
