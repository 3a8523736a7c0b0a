"""Estimates with their intervals, and how a fit's JSON form is read."""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from bss.errors import InputError


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, or the reason why there is none.

    Attributes:
        value: the estimate; None where the design does not identify it.
        low: lower end of the interval, or a lower bound where the value is None.
        high: upper end, in the same way.
        level: nominal coverage of the interval.
        note: why a value is missing ("unidentified: ..."), else empty.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float = 0.90
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; `note` only where there is one."""
        entry = {"value": self.value, "low": self.low, "high": self.high, "level": self.level}
        return entry | ({"note": self.note} if self.note else {})

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "Estimate":
        """Read `to_dict` back; other keys are ignored."""
        return cls(**{key: entry[key] for key in cls.__dataclass_fields__ if key in entry})


@contextlib.contextmanager
def reading(entry: dict[str, Any], kind: str, schema: int):
    """Reads a fit's JSON form; what is wrong with it is told in one line.

    Raises:
        InputError: another kind or schema, or a field that is missing or damaged.
    """
    write = f"`bss fit {kind} --json`"
    found = entry.get("kind"), entry.get("schema", schema)
    if found != (kind, schema):
        raise InputError(
            f"fit: kind {found[0]!r}, schema {found[1]!r}; expected a fit of kind {kind!r}, schema "
            f"{schema}, as {write} writes it"
        )
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"fit: damaged, {type(error).__name__} at {error}; write it again with {write}"
        ) from None


@dataclass(frozen=True)
class Options:
    """How intervals are made.

    Attributes:
        resamples: bootstrap refits.
        level: nominal coverage.
        seed: of the bootstrap's generator.

    Raises:
        InputError: on construction, if one of the first two is out of range.
    """

    resamples: int = 500
    level: float = 0.90
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise InputError(f"resamples: {self.resamples} given; write 1 or more, such as 500")
        if not 0 < self.level < 1:
            raise InputError(f"level: {self.level} given; write a coverage between 0 and 1")


def interval(value: float, draws: np.ndarray, *, level: float = 0.90) -> Estimate:
    """The bootstrap's percentile interval around an estimate.

    Args:
        value: the estimate.
        draws: [R], its refits; infinite ones leave their end open, NaN ones do not count.
        level: nominal coverage.
    """
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.nanquantile(draws, tails, method="nearest")
    return Estimate(float(value), _finite(low), _finite(high), level)


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
