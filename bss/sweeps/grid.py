"""Sweeps as lists of overlays on one run: dotted field names with their values.

An axis is a list of overlays, e.g. from `sweep_product` or `sweep_zip`. It can also be a function
that returns the runs which replace a run. `expand` combines several axes.
"""

import difflib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from bss.errors import InputError, check_type
from bss.models.sizes import group_of
from bss.training.run_config import RunConfig
from bss.values import dotted, from_dict, replace_fields, to_dict

Overlay = Mapping[str, Any]
Axis = Sequence[Overlay] | Callable[[RunConfig], Iterable[RunConfig]]
MOST_RUNS = 20_000
"""Number of runs of one sweep that is planned in seconds; more is usually a slip in an axis."""
_FIELDS = {field.name for field in fields(RunConfig)}


def sweep_product(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """Return every combination of the axes' values. The last axis varies fastest.

    Args:
        axes: Values by the dotted name of a field.

    Raises:
        InputError: If they are more than `MOST_RUNS`.

    Examples:
        >>> sweep_product({"seed": [0, 1], "schedule.batch": ["4"]})
        [{'seed': 0, 'schedule.batch': '4'}, {'seed': 1, 'schedule.batch': '4'}]
    """
    _check_axes(axes)
    _check_count(math.prod(len(values) for values in axes.values()))
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _check_axes(axes: Any) -> None:
    """Raise InputError for axes that are not lists of values by the name of a field."""
    check_type("axes", axes, Mapping, "lists of values by the dotted name of a field")
    for name, values in axes.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(f"axes: {name}: {values!r} given; write a list of values")


def seeded(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """Return the result of `sweep_product`, where `seed` also sets the seed of the data order."""
    return [{**changes, "data.seed": changes["seed"]} for changes in sweep_product(axes)]


def sweep_zip(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """Return overlays that take the i-th value of every axis.

    Raises:
        InputError: If the axes differ in length.

    Args:
        axes: Values by the dotted name of a field, equally many for each.

    Examples:
        >>> sweep_zip({"schedule.batch": [4, 8], "optimizer.lr": [1e-3, 2e-3]})[1]
        {'schedule.batch': 8, 'optimizer.lr': 0.002}
    """
    _check_axes(axes)
    lengths = {name: len(values) for name, values in axes.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"zipped axes have lengths {lengths}; give each the same length")
    return [dict(zip(axes, values, strict=True)) for values in zip(*axes.values(), strict=True)]


def overlay(run: RunConfig, changes: Overlay) -> RunConfig:
    """Return a run with some fields replaced.

    Args:
        run: The run.
        changes: Values by the dotted name of a field. A `model` is written as in a config. It keeps
            the run's vocabulary size if it has none.

    Raises:
        InputError: If a field is unknown, or a value is refused.

    Examples:
        >>> from bss.models.sizes import named
        >>> overlay(RunConfig(named("nano", 256)), {"optimizer.lr": 1e-3}).optimizer.lr
        0.001
    """
    check_type("run", run, RunConfig, "a run as bss.RunConfig")
    check_type("changes", changes, Mapping, "values by the dotted name of a field")
    return _overlay_plain(_normalize(run), changes)


def _normalize(run: RunConfig) -> RunConfig:
    """Return the run as it is read from a file: each field has its annotated type."""
    return from_dict(RunConfig, to_dict(run))


def _overlay_plain(run: RunConfig, changes: Overlay) -> RunConfig:
    """Return a normalized run with some fields replaced; only their groups are built anew.

    All runs of an axis then share the groups that it does not change.
    """
    entry: dict[str, Any] = {}
    for name, value in changes.items():
        field, *path = name.split(".")
        if field not in _FIELDS:
            raise InputError(f"{name} is not a field of a run; {_hint(name, field, to_dict(run))}")
        if not path:
            entry[field] = group_of(value, run.model.vocab_size) if name == "model" else value
            continue
        if field not in entry:
            entry[field] = to_dict(getattr(run, field))
        target: Any = entry
        for group in (field, *path[:-1]):
            target = target.get(group)
            if not isinstance(target, dict):
                hint = _hint(name, group, to_dict(run))
                raise InputError(f"{name} is not a field of a run; {hint}")
        target[path[-1]] = value
    return replace_fields(run, entry)


def expand(base: RunConfig, *axes: Axis) -> list[RunConfig]:
    """Return the distinct runs of a sweep, last axis fastest; see `distinct`.

    Raises:
        InputError: If an axis names no field, or the runs are more than `MOST_RUNS`.

    Examples:
        >>> from bss.models.sizes import named
        >>> base = RunConfig(named("nano", 256))
        >>> twice = lambda run: [overlay(run, {"schedule.batch": text}) for text in ("4", "16")]
        >>> [str(run.schedule.batch) for run in expand(base, [{"seed": 1}, {"seed": 2}], twice)]
        ['4', '16', '4', '16']
    """
    expanded = [base]
    for axis in axes:
        if not callable(axis):
            _check_count(len(expanded) * len(axis))
        expanded = [new for run in expanded for new in _along(run, axis)]
        _check_count(len(expanded))
    return distinct(expanded)


def _check_count(runs: int) -> None:
    if runs > MOST_RUNS:
        raise InputError(
            f"axes: they give {runs:,} runs, and one sweep has at most {MOST_RUNS:,}; give fewer "
            "values, or several sweeps that share --set engine.runs=DIR"
        )


def distinct(runs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return the runs in order, without duplicates.

    Runs of one id that differ in their token budgets are all kept: the larger budget continues the
    smaller.
    """
    return list({(run.id, run.schedule.tokens): run for run in runs}.values())


def longest(runs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return one run per id, in order: the one with the largest token budget."""
    found: dict[str, RunConfig] = {}
    for run in runs:
        known = found.get(run.id, run)
        found[run.id] = max(known, run, key=lambda one: one.schedule.tokens)
    return list(found.values())


def stages(runs: Iterable[RunConfig]) -> list[list[RunConfig]]:
    """Return the runs in stages, each of distinct ids: smaller token budgets come first.

    The largest budget of every id is in the last stage, with the branches of all.
    """
    budgets: dict[str, list[RunConfig]] = {}
    for run in distinct(runs):
        budgets.setdefault(run.id, []).append(run)
    for own in budgets.values():
        own.sort(key=lambda run: -run.schedule.tokens)
    count = max(map(len, budgets.values()), default=0)
    return [[own[k] for own in budgets.values() if k < len(own)] for k in reversed(range(count))]


def _along(run: RunConfig, axis: Axis) -> Iterable[RunConfig]:
    if not callable(axis):
        plain = _normalize(run)
        return [_overlay_plain(plain, changes) for changes in axis]
    given: Any = axis(run)
    runs = [*given] if isinstance(given, Iterable) else []
    if not runs or not all(isinstance(one, RunConfig) for one in runs):
        raise InputError("axes: a function gave no runs; expected one from a run to a list of runs")
    return runs


def _hint(name: str, part: str, values: Mapping[str, Any]) -> str:
    """Return a hint with the similar field names."""
    known = [known for known, _ in dotted(values)]
    leaf = name.rpartition(".")[2]
    same = [one for one in known if one.rpartition(".")[2] == leaf]
    near = same or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"{part!r} is not a group"
