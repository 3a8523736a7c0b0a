"""A config at several sizes: one base, the overrides of each size, and shared settings."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

DEVICES = {
    "retries": 2,
    "address": "",
    "vmap_runs": 1,
    "devices": 0,
    "evaluation_bucket": 32,
    "repeatable": False,
    "attention": "auto",
    "trackers": (),
}
"""Use of a machine by an engine; see `bss.sweeps.setup.EngineConfig`."""

SETUP = {
    "model": "nano",
    "text": {"corpus": "stdlib", "tokenizer": "bytes", "root": "data", "seq_len": 64},
    "optimizer": {"lr": 4e-3, "beta1": 0.9, "weight_decay": 0.0},
    "schedule": {"rate": "wsd"},
    "evaluation": {"tokens": 16_384, "test_tokens": 131_072},
    "averages": ("4%",),
    "engine": {
        "workers": 0,
        "pin": True,
        "buckets": (1, 2, 3, 4, 5, 6, 7, 8),
        "checkpoint_seconds": 60.0,
        **DEVICES,
    },
}
"""Settings for small models on a CPU; a base adds to them by dotted paths."""

PRICED = {"dry_run": False, "peak_flops": 989e12, "mfu": 0.4}
"""Settings of a study that can print its cost."""


def sized(
    base: Mapping[str, Any], overlays: Mapping[str, Mapping[str, Any]], default: str
) -> Callable[..., ConfigDict]:
    """The `get_config` of an experiment: its config at a size, by name, or at the default one."""

    def get_config(size: str = default) -> ConfigDict:
        return at_size(size, base, overlays)

    return get_config


def at_size(
    size: str, base: Mapping[str, Any], overlays: Mapping[str, Mapping[str, Any]]
) -> ConfigDict:
    """Return the base with the overlay of a size.

    Args:
        size: its name.
        base: values by dotted path; `{size}` in their texts is replaced by the name.
        overlays: by size, new values by dotted path; a group of fields is merged.

    Raises:
        ValueError: If the size does not exist.

    Examples:
        >>> base = {"results": "runs/{size}", "setup": {"model": "nano"}}
        >>> at_size("smoke", base, {"smoke": {"setup.model": "pico"}}).to_dict()
        {'results': 'runs/smoke', 'setup': {'model': 'pico'}}
    """
    if size not in overlays:
        raise ValueError(f"size {size!r}: expected one of {', '.join(overlays)}")
    config = ConfigDict()
    for path, value in [*_named(base, size).items(), *overlays[size].items()]:
        with config.ignore_type():  # a model's name may become a group of fields
            config.update(
                functools.reduce(lambda inner, key: {key: inner}, path.split(".")[::-1], value)
            )
    return config


def _named(value: Any, size: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _named(entry, size) for key, entry in value.items()}
    return value.format(size=size) if isinstance(value, str) else value
