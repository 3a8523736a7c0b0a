"""The one exception that a person's mistake raises, and the checks that many values share."""

import re
from numbers import Real
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that end a line, command a terminal or turn a text around, and surrogates."""


def printable(text: str, keep: str = "") -> str:
    r"""Return a text with control characters as escapes, as names in a file may have any.

    Args:
        text: The text.
        keep: Characters that stay, e.g. a line end.

    Examples:
        >>> printable("b8\n\x1b[31m"), printable("one\ntwo", keep="\n")
        ('b8\\n\\x1b[31m', 'one\ntwo')
    """
    return _CONTROL.sub(lambda at: at[0] if at[0] in keep else _escaped(at[0]), text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


class InputError(ValueError):
    r"""Bad input, in one line: the field, its value, the expected value, how to fix it.

    The command line prints the message and exits with status 2; nothing else catches it. Control
    characters of names in the message are escapes, so that it stays one line.

    Examples:
        >>> str(InputError("b8\n.csv: no such file"))
        'b8\\n.csv: no such file'
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def check(holds: bool, field: str, value: Any, expected: str) -> None:
    """Refuses a value that a condition does not hold of."""
    if not holds:
        raise InputError(f"{field}: {value} given; write {expected}")


def check_type(field: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise InputError for a value of another type."""
    if not isinstance(value, kind):
        raise InputError(f"{field}: {type(value).__name__} given; write {expected}")


def check_number(field: str, value: Any) -> None:
    """Raise InputError for text, None, a bool, a missing value, or another value that is not a
    number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{field}: {value!r} given; write a number")


def check_least(group: str, value: Any, **least: float) -> None:
    """Raise InputError if a field of this group of settings is below its minimum."""
    for name, low in least.items():
        if not getattr(value, name) >= low:
            raise InputError(f"{group}.{name} is {getattr(value, name)}; expected {low} or more")
