"""A sweep is a list of overlays on one run: dotted field names and the values they take.

An axis is such a list (of `product`, of `zipped`, or your own), or a function of your own from a
run to the runs it stands for; `expand` takes several.
"""

import difflib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bss.errors import InputError
from bss.models.sizes import group_of
from bss.training.run_config import RunConfig
from bss.values import dotted, from_dict, to_dict

Overlay = Mapping[str, Any]
Axis = Sequence[Overlay] | Callable[[RunConfig], Iterable[RunConfig]]


def product(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """Every combination of the axes' values, the last axis fastest.

    Examples:
        >>> product({"seed": [0, 1], "schedule.batch": ["4"]})
        [{'seed': 0, 'schedule.batch': '4'}, {'seed': 1, 'schedule.batch': '4'}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def seeded(axes: Mapping[str, Sequence[Any]]) -> list[Overlay]:
    """As `product`, of axes with a `seed`, which is the seed of the data order too."""
    return [{**changes, "data.seed": changes["seed"]} for changes in product(axes)]


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

    A `model` is written as in a config, and keeps the run's vocabulary where it says none.

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
                raise InputError(f"{name} is not a field of a run; {_hint(name, group, values)}")
            target = target[group]
        if not groups and leaf not in values:
            raise InputError(f"{name} is not a field of a run; {_hint(name, leaf, values)}")
        target[leaf] = group_of(value, run.model.vocab_size) if name == "model" else value
    return from_dict(RunConfig, values)


def expand(base: RunConfig, *axes: Axis) -> list[RunConfig]:
    """The runs of a sweep, the last axis fastest; equal runs once, a trunk at its farthest stop.

    Examples:
        >>> from bss.models.sizes import named
        >>> base = RunConfig(named("nano", 256))
        >>> twice = lambda run: [overlay(run, {"schedule.batch": text}) for text in ("4", "16")]
        >>> [str(run.schedule.batch) for run in expand(base, [{"seed": 1}, {"seed": 2}], twice)]
        ['4', '16', '4', '16']
    """
    expanded = [base]
    for axis in axes:
        expanded = [new for run in expanded for new in _along(run, axis)]
    runs: dict[str, RunConfig] = {}
    for run in expanded:
        known = runs.get(run.id, run)
        runs[run.id] = max(known, run, key=lambda r: r.schedule.tokens)
    return list(runs.values())


def distinct(runs: Iterable[RunConfig]) -> list[RunConfig]:
    """The runs in order, equal ones once: two contenders may be one run."""
    return list({run.id: run for run in runs}.values())


def _along(run: RunConfig, axis: Axis) -> Iterable[RunConfig]:
    if not callable(axis):
        return [overlay(run, changes) for changes in axis]
    given: Any = axis(run)
    runs = [*given] if isinstance(given, Iterable) else []
    if not runs or not all(isinstance(one, RunConfig) for one in runs):
        raise InputError("axes: a function gave no runs; expected one from a run to a list of runs")
    return runs


def _hint(name: str, part: str, values: Mapping[str, Any]) -> str:
    """The field that was meant: of the same last part, or nearly the same."""
    known, leaf = [known for known, _ in dotted(values)], name.rpartition(".")[2]
    same = [one for one in known if one.rpartition(".")[2] == leaf]
    near = same or difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"{part!r} is no group"
