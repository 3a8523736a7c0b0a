"""The axes of a sweep and changes of its setup, as a config or a command line writes them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from bss.errors import InputError
from bss.registry import load
from bss.sweeps.grid import Axis, seeded, sweep_product
from bss.values import dotted

_AXIS = "write PATH=VALUE,VALUE, as schedule.batch=4,8"
_SET = "write PATH=VALUE, as optimizer.lr=2e-3"
_TEXT = ("data.corpus", "data.tokenizer", "data.content")


def read_axes(written: Any, more: Sequence[str] = ()) -> list[Axis]:
    """Return the axes of a sweep. The last axis varies fastest.

    Values are not checked against their fields here. A `seed` also sets the seed of the data
    order, unless another axis sets that one. An axis of the command line replaces the axis of the
    same field in `written`.

    Args:
        written: A dict such as {"schedule.batch": [4, 8]}, nested or with dotted names, for every
            combination. Or a list of overlays, a function from a run to runs, or "module:AXIS".
        more: Axes from the command line, each as "schedule.batch=4,8".

    Raises:
        InputError: If an axis is invalid or has no values, or two axes set the same field.

    Examples:
        >>> read_axes({"schedule": {"batch": [4, 8]}}, ["data.seed=1"])
        [[{'schedule.batch': 4, 'data.seed': 1}, {'schedule.batch': 8, 'data.seed': 1}]]
        >>> read_axes({"schedule.batch": [4, 8]}, ["schedule.batch=16"])
        [[{'schedule.batch': 16}]]
    """
    if isinstance(written, str):
        written = load(written, "axes")
    added = [_parsed_axis(text) for text in more]
    if isinstance(written, Mapping) or not written:
        fields = [(name, x) for name, x in dotted(written or {}) if not isinstance(x, Mapping)]
        replaced = {name for name, _ in added}
        kept = [(name, _values(name, x)) for name, x in fields if name not in replaced]
        return _combined([*kept, *added])
    first = cast(Axis, written) if callable(written) else _overlays(written)
    taken = [] if callable(first) else sorted({name for one in first for name in one})
    return [first, *_combined(added, taken)]


def parse_set(text: str) -> tuple[list[str], Any]:
    """Split "optimizer.lr=2e-3" into the path of the field and its value."""
    name, value = _halves(text, "--set", _SET)
    return name.split("."), _value(value)


def axis_name(text: str) -> str:
    """Return the field of an axis that is written as "schedule.batch=4,8"."""
    return _halves(text, "--axis", _AXIS)[0]


def _parsed_axis(text: str) -> tuple[str, list[Any]]:
    name, value = _halves(text, "--axis", _AXIS)
    listed = value.startswith("[")
    values = _value(value) if listed else [_value(one) for one in value.split(",") if one.strip()]
    return name, _values(name, values)


def _halves(text: str, option: str, expected: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    name = left.strip()
    if not name or not equals:
        raise InputError(f"{option} {text!r}: {expected}")
    return name, right.strip()


def _value(text: str) -> Any:
    """Return the parsed JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text.strip()


def _values(name: str, values: Any) -> list[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"axis {name} is {values!r}; expected a list of values, as [4, 8]")
    listed = list(values)
    if not listed:
        raise InputError(f"axis {name} has no values; {_AXIS}, or leave the axis out")
    return listed


def _overlays(written: Any) -> list[Mapping[str, Any]]:
    overlays = list(written) if isinstance(written, Iterable) else []
    if not overlays or not all(isinstance(one, Mapping) for one in overlays):
        raise InputError(
            f"axes are {written!r}; expected fields with lists of values, a list of overlays as "
            '[{"schedule.batch": 4}], or "module:AXIS"'
        )
    for one in overlays:
        _refuse_text(one)
    return overlays


def _combined(axes: Sequence[tuple[str, list[Any]]], taken: Sequence[str] = ()) -> list[Axis]:
    names = [*taken, *(name for name, _ in axes)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(f"axis {twice} occurs twice; give one, with the values of both")
    _refuse_text(names)
    if not axes:
        return []
    own_order = "seed" in names and "data.seed" not in names
    return [(seeded if own_order and "seed" not in taken else sweep_product)(dict(axes))]


def _refuse_text(names: Iterable[str]) -> None:
    for name in names:
        if name in _TEXT:
            raise InputError(
                f"axis {name}: all runs of a sweep read one text; sweep each by itself"
            )
