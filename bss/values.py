"""Configs and fits as plain nested dicts and back, by their types.

A class may change its form. `parse` and `str` convert a value from and to text, and metadata `key`
names a field. `encoded` and `decoded` change the dict of fields, and `variant` chooses the class of
an entry. `Annotated` with a `Range` bounds a number. A class with `may_lack` is a stored result:
its JSON has every other key, and its `check` refuses fields that contradict each other.
"""

import contextlib
import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

from bss.errors import InputError
from bss.renamed import FIELDS
from bss.units import parse_number, parse_tokens

T = TypeVar("T")
SLACK = 1e-6  # relative: numbers of a stored result are rounded to seven digits


@dataclass(frozen=True)
class Range:
    """The numbers that a field may have: finite ones from `low` to `high`, or every element.

    Attributes:
        low, high: the ends.
        inside: exclude the ends.
        nan: admit NaN, for a number that is not known.

    Examples:
        >>> Range(0, inside=True).check(-5, "B_opt")
        Traceback (most recent call last):
        bss.errors.InputError: B_opt is -5; expected a number above 0
    """

    low: float = -math.inf
    high: float = math.inf
    inside: bool = False
    nan: bool = False

    def check(self, value: Any, where: str) -> None:
        """Raise InputError unless a number, or every number of an array, is in the range."""
        numbers = np.asarray(value, float)
        holds = np.isfinite(numbers) & (numbers >= self.low) & (numbers <= self.high)
        if self.inside:
            holds &= (numbers != self.low) & (numbers != self.high)
        if self.nan:
            holds |= np.isnan(numbers)
        if not holds.all():
            wrong = numbers[~holds].ravel()[0]
            raise InputError(f"{where} is {wrong:g}; expected a {self}")

    def __str__(self) -> str:
        """Return the range in words."""
        if self.low == -math.inf:
            return "finite number"
        if self.high < math.inf:
            return f"number from {self.low:g} to {self.high:g}"
        return f"number above {self.low:g}" if self.inside else f"number of {self.low:g} or more"


Finite = Annotated[float, Range()]
Positive = Annotated[float, Range(0, inside=True)]
Nonnegative = Annotated[float, Range(0)]
Count = Annotated[int, Range(0)]
PositiveCount = Annotated[int, Range(1)]
Share = Annotated[float, Range(0, 1, inside=True)]


_PLAIN = frozenset({str, int, bool, type(None)})
"""Types of most values, which are as they are in JSON."""


@functools.cache
def _keys(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the key and the name of each field of a dataclass."""
    return tuple((_key(field), field.name) for field in dataclasses.fields(kind))


def to_dict(value: Any) -> Any:
    """Return a value as nested dicts, tuples, lists, numbers and text for JSON; NaN is None."""
    if type(value) in _PLAIN:
        return value
    if hasattr(type(value), "parse"):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {key: to_dict(getattr(value, name)) for key, name in _keys(type(value))}
        return value.encoded(plain) if hasattr(value, "encoded") else plain  # type: ignore[attr-defined]
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_dict(value._asdict())  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return {key: to_dict(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_dict(v) for v in value)
    if isinstance(value, np.ndarray | np.generic):
        return to_dict(value.tolist())
    return None if isinstance(value, float) and math.isnan(value) else value


def dotted(fields: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Nested fields by their dotted names, a group before what is in it."""
    for name, value in fields.items():
        yield f"{group}{name}", value
        if isinstance(value, Mapping):
            yield from dotted(value, f"{group}{name}.")


def from_dict(cls: type[T], entry: Any, where: str = "", *, strict: bool = True) -> T:
    """Build a dataclass or NamedTuple from a nested mapping, by the types of its fields.

    Args:
        cls: The class to build.
        entry: Its fields by name. Integers may be written as token counts ("10M").
        where: Prefix of error messages, which is the path of the entry with a final ".".
        strict: Refuse unknown keys, and null for a number. If False, unknown keys are ignored and
            null is NaN, because JSON has no NaN. Fits are read this way.

    Raises:
        InputError: naming the path, its value and what is expected.
    """
    if isinstance(entry, str) and hasattr(cls, "choices"):
        entry = {"name": entry}  # an optimizer, or a model of a named size
    if not isinstance(entry, Mapping):
        raise InputError(f"{where.rstrip('.')} is {entry!r}; expected a group of fields")
    kind: Any = cls.variant(entry) if hasattr(cls, "variant") else cls  # type: ignore[attr-defined]
    if hasattr(kind, "decoded"):
        entry = _decoded(kind, entry, where, strict)
    names, hints = _fields(kind)
    for key in entry if strict else ():
        if key not in hints:
            raise InputError(f"{where}{key} is not a field of {kind.__name__}; {_hint(key, hints)}")
    given = {
        names[key]: _value(hints[key], value, f"{where}{key}", strict)
        for key, value in entry.items()
        if key in hints
    }
    if not strict and hasattr(kind, "may_lack"):
        for key in hints:
            if key not in entry and key not in kind.may_lack:
                raise InputError(f"{where.rstrip('.')} lacks {key}")
    try:
        value = kind(**given)
    except TypeError as error:
        missing = str(error).rsplit(": ", 1)[-1]
        raise InputError(f"{where.rstrip('.') or 'config'} lacks {missing}; add it") from None
    if not strict and hasattr(kind, "may_lack"):
        value.check(where)
    return value


def _hint(key: str, known: Mapping[str, Any]) -> str:
    """Return which known key may be meant."""
    if FIELDS.get(key) in known:
        return f"it is {FIELDS[key]} now"
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"


def _decoded(kind: Any, entry: Mapping[str, Any], where: str, strict: bool) -> dict[str, Any]:
    """Return the fields of a JSON form; of a stored result whatever fails is bad input."""
    try:
        return kind.decoded(dict(entry))
    except (LookupError, TypeError, AttributeError) as error:
        if strict:
            raise
        problem = f"{type(error).__name__}: {error}"
        raise InputError(f"{where.rstrip('.')} cannot be read ({problem})") from None


def read_fields(config: Any, where: str) -> None:
    """Convert fields of a frozen dataclass that were given as in JSON, as `from_dict` does.

    A class calls it first in `__post_init__`, so that in Python too a schedule may be "0:8 40K:16",
    a token count "1M", and a group of fields a dict.

    Args:
        config: The dataclass. Fields that have their types stay the same objects.
        where: Prefix of error messages, which is the name of the group with a final ".".

    Raises:
        InputError: As `from_dict`.
    """
    kind = type(config)
    names, hints = _fields(kind)
    given = {key: getattr(config, name) for key, name in names.items()}
    entry = kind.decoded({**given}) if hasattr(kind, "decoded") else given
    for key, value in entry.items():
        hint = hints[key]
        typed = value
        if type(value) is not hint and not (hint is float and type(value) is int):
            typed = _value(hint, value, f"{where}{key}", True)
        if typed is not given[key]:
            object.__setattr__(config, names[key], typed)


def replace_fields(value: T, entry: Mapping[str, Any]) -> T:
    """Return a dataclass with some of its fields built from plain values, as by `from_dict`.

    Raises:
        InputError: As `from_dict`; the keys must be fields.
    """
    names, hints = _fields(type(value))
    given = {names[key]: _value(hints[key], plain, key, True) for key, plain in entry.items()}
    return dataclasses.replace(typing.cast(Any, value), **given)


@functools.cache
def _fields(kind: type) -> tuple[dict[str, str], dict[str, Any]]:
    """By the key of each field, its name and its type."""
    hints = typing.get_type_hints(kind, include_extras=True)
    names = {name: name for name in hints}
    if dataclasses.is_dataclass(kind):  # whose class variables are no fields
        names = {_key(f): f.name for f in dataclasses.fields(kind)}
    return names, {key: hints[name] for key, name in names.items() if name in hints}


def _key(field: dataclasses.Field) -> str:
    return field.metadata.get("key", field.name)


def _value(kind: Any, value: Any, where: str, strict: bool) -> Any:
    """Return a value of an annotated type."""
    origin = typing.get_origin(kind)
    members = typing.get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        value = _value(members[0], value, where, strict)
        for one in members[1:]:
            one.check(value, where)
        return value
    if origin is Literal:
        if value not in members:
            known = ", ".join(map(str, members))
            raise InputError(f"{where} is {value!r}; expected one of {known}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _union(members, value, where, strict)
    if origin in (tuple, list):
        return _sequence(origin, members, value, where, strict)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f"{where} is {value!r}; expected a group of fields")
        return {key: _value(members[1], v, f"{where}.{key}", strict) for key, v in value.items()}
    if kind is np.ndarray:
        return _array(value, where)
    if hasattr(kind, "parse"):
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise InputError(f"{where} is {value!r}; expected a text")
        return kind.parse(value)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        if isinstance(value, kind):
            return value
        return from_dict(typing.cast(type, kind), value, f"{where}.", strict=strict)
    return _scalar(kind, value, where, strict)


def _array(value: Any, where: str) -> np.ndarray:
    """Return an array of numbers; null is NaN."""
    if not isinstance(value, list | tuple | np.ndarray):
        raise InputError(f"{where} is {value!r}; expected a list of numbers")
    array = np.array([math.nan if v is None else v for v in value])
    if array.dtype.kind not in "iuf":
        raise InputError(f"{where} is {str(value)[:40]}; expected a list of numbers")
    return array


def _union(members: tuple[Any, ...], value: Any, where: str, strict: bool) -> Any:
    """Return the first member that takes the value; the error of the one nearest to it."""
    if value is None and type(None) in members:
        return None
    errors = []
    for member in (m for m in members if m is not type(None)):
        try:
            return _value(member, value, where, strict)
        except InputError as error:
            errors.append(error)
    if len(errors) > 1 and not isinstance(value, Mapping):
        names = " or ".join(getattr(m, "__name__", str(m)) for m in members if m is not type(None))
        raise InputError(f"{where} is {value!r}; expected {names}")
    raise errors[-1]


def _sequence(origin: Any, members: tuple[Any, ...], value: Any, where: str, strict: bool) -> Any:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} is {value!r}; expected a list")
    repeated = origin is list or members[-1] is Ellipsis
    kinds = members[:1] * len(value) if repeated else members
    if len(kinds) != len(value):
        raise InputError(f"{where} has {len(value)} values; expected {len(kinds)}")
    pairs = enumerate(zip(kinds, value, strict=True))
    return origin(_value(kind, v, f"{where}[{i}]", strict) for i, (kind, v) in pairs)


def _scalar(kind: type, value: Any, where: str, strict: bool) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if kind is int and isinstance(value, str):
        return parse_tokens(value, field=where)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is float and value is None and not strict:
        return math.nan
    if kind is float and strict and isinstance(value, str):
        with contextlib.suppress(InputError):  # else the type is named below
            value = parse_number(value, field=where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{where} is {value!r}; expected {kind.__name__}")
    if isinstance(value, float) and strict and not math.isfinite(value):
        raise InputError(f"{where} is {value}; expected a finite number")
    return value
