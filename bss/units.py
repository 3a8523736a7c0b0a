"""Token counts and their text ("250M", "1.5B", "2^20", "20%"), parsed and printed in one place.

Counts are exact Python integers at any size: 10^13 tokens are beyond int32 and float32.
"""

import math
import re
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

from bss.errors import InputError

SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
LARGEST = 2**63 - 1  # so that every count fits the int64 columns of the tables

_NUMBER = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e\+?([0-9]{1,2}))?([kmbt%]?)", re.IGNORECASE
)
_POWER = re.compile(r"2\^([0-9]{1,2})")


def parse_tokens(text: str | int, *, field: str = "tokens", total: int | None = None) -> int:
    """Return the exact count that a text means.

    Args:
        text: "250M", "1.5B", "200K", "1e6", "2^20" or an integer; decimal suffixes K, M, B, T in
            either case. "20%" if a total is given; fractions of a count are rounded down.
        field: the name of the setting, for the error message.
        total: Tokens of which a percentage is a share.

    Returns:
        A count in [0, 2^63).

    Raises:
        InputError: If the text is not a count, or is negative, fractional or too large.

    Examples:
        >>> parse_tokens("1.5B"), parse_tokens("2^20"), parse_tokens("20%", total=1001)
        (1500000000, 1048576, 200)
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise InputError(f"{field}: {text!r} is not a count; write an integer or a text like 250M")
    count = text if isinstance(text, int) else _count(text.strip(), field, total)
    if count < 0:
        raise InputError(f"{field}: {text} is negative; write a count of 0 or more")
    if count > LARGEST:
        raise InputError(f"{field}: {text} is too large; write a count below 2^63")
    return count


def parse_number(text: str | float, *, field: str = "number") -> float:
    """Return the finite number that a text means, with the suffixes of `parse_tokens`.

    Raises:
        InputError: If the text is not a finite number.

    Examples:
        >>> parse_number(".1"), parse_number("-2e-3"), parse_number("2k"), parse_number("2^20")
        (0.1, -0.002, 2000.0, 1048576.0)
    """
    written = str(text).strip()
    with suppress(ValueError):
        number = float(written)
        if math.isfinite(number):
            return number
    with suppress(InputError):
        return float(parse_tokens(written))
    raise InputError(f"{field}: {text!r} is not a number; write it like 0.1, 2e-3 or 2K")


def format_tokens(count: int, before: str = "") -> str:
    """Return the shortest text that parses back to exactly this count, after a prefix.

    Examples:
        >>> format_tokens(250_000_000), format_tokens(1_500), format_tokens(123_456)
        ('250M', '1.5K', '123456')
    """
    texts = [
        f"{(Decimal(count) / unit).normalize():f}{suffix}"
        for suffix, unit in SUFFIXES.items()
        if unit <= max(count, 1)
    ]
    return before + min(reversed(texts), key=len)


def rounded_tokens(count: float, digits: int = 3, before: str = "") -> str:
    """Return a measured count as text.

    >>> rounded_tokens(146_149.3)
    '146K'
    """
    return format_tokens(int(float(f"{count:.{digits}g}")), before)


def _count(text: str, field: str, total: int | None) -> int:
    if power := _POWER.fullmatch(text):
        return 2 ** int(power[1])
    number = _NUMBER.fullmatch(text)
    if number is None or len(text) > 40:
        raise InputError(
            f"{field}: {text[:40]!r} is not a count of 0 or more; "
            "write it like 250M, 1.5B, 200K, 1e6, 2^20 or 123456"
        )
    value = Fraction(Decimal(number[1])) * 10 ** int(number[2] or 0)
    suffix = number[3].upper()
    if suffix == "%":
        if total is None:
            raise InputError(f"{field}: {text} is a share of nothing here; write a count like 250M")
        if value > 100:
            raise InputError(f"{field}: {text} is more than the whole; write at most 100%")
        return math.floor(value * total / 100)
    count = value * SUFFIXES[suffix]
    if count.denominator != 1:
        raise InputError(f"{field}: {text} is not a whole number; write an exact count")
    return int(count)
