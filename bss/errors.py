"""The one exception that a person's mistake raises, and the checks that many values share."""

from numbers import Real
from typing import Any


class InputError(ValueError):
    """Bad input, in one line: the field, its value, the expected value, how to fix it.

    The command line prints the message and exits with status 2; nothing else catches it.
    """


def check(holds: bool, field: str, value: Any, expected: str) -> None:
    """Refuses a value that a condition does not hold of."""
    if not holds:
        raise InputError(f"{field}: {value} given; write {expected}")


def check_number(field: str, value: Any) -> None:
    """Raise InputError for what is no number: text, None, a bool, or a missing value."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{field}: {value!r} given; write a number")


def check_least(group: str, value: Any, **least: float) -> None:
    """Raise InputError if a field of this group of settings is below its minimum."""
    for name, low in least.items():
        if not getattr(value, name) >= low:
            raise InputError(f"{group}.{name} is {getattr(value, name)}; expected {low} or more")
