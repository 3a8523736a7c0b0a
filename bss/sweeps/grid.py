"""A sweep is a list of overlays on one run: dotted field names and the values they take.

product({"schedule.batch": ["4", "8"], "seed": [0, 1]})      four overlays
zipped({"schedule.batch": ["4", "8"], "optimizer.lr": [2e-3, 4e-3]})      two
product(...) + [{"optimizer.name": "sgd"}]      overlays are dicts in a list
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bss.errors import InputError
from bss.training.config import RunConfig
from bss.values import from_dict, to_dict

Overlay = Mapping[str, Any]


def product(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """Every combination of the axes' values, the last axis fastest.

    Examples:
        >>> product({"seed": [0, 1], "schedule.batch": ["4"]})
        [{'seed': 0, 'schedule.batch': '4'}, {'seed': 1, 'schedule.batch': '4'}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def zipped(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """The axes' values side by side.

    Raises:
        InputError: where the axes differ in length.
    """
    lengths = {name: len(values) for name, values in axes.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"zipped axes have lengths {lengths}; give each the same length")
    return [dict(zip(axes, values, strict=True)) for values in zip(*axes.values(), strict=True)]


def overlay(run: RunConfig, changes: Overlay) -> RunConfig:
    """A run with some fields replaced; unknown fields are refused by name.

    Examples:
        >>> from bss.models.sizes import named
        >>> overlay(RunConfig(named("nano", 256)), {"optimizer.lr": 1e-3}).optimizer.lr
        0.001
    """
    values = to_dict(run)
    for name, value in changes.items():
        *groups, leaf = name.split(".")
        target: Any = values
        for group in groups:
            if not isinstance(target, dict) or not isinstance(target.get(group), dict):
                raise InputError(f"{name} is not a field of a run; {group!r} is no group")
            target = target[group]
        target[leaf] = value
    return from_dict(RunConfig, values)


def expand(base: RunConfig, overlays: Sequence[Overlay]) -> list[RunConfig]:
    """The runs of a sweep, in order; equal runs are kept once, a trunk at its farthest stop."""
    runs: dict[str, RunConfig] = {}
    for changes in overlays:
        run = overlay(base, changes)
        known = runs.get(run.id, run)
        runs[run.id] = max(known, run, key=lambda r: r.schedule.tokens)
    return list(runs.values())
