"""Numbers that a test needs to be there."""

from bss.laws.base import Estimate


def numbers(*values: float | None) -> list[float]:
    found = [value for value in values if value is not None]
    assert len(found) == len(values)
    return found


def ends(found: Estimate) -> list[float]:
    """Low, value and high."""
    return numbers(found.low, found.value, found.high)
