"""What a user holds of a law: parameters at a value, or within bounds, by their printed names.

The fitter knows boxes. A range is put into the fitted numbers by the law's own decoding, so any
parameter can be held that follows from one fitted number, the others held before (derived here).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bss.errors import InputError

Decode = Callable[[np.ndarray], Any]
"""Fitted numbers [P] -> parameters as they are printed, in the order of their names."""
Box = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Constraints:
    """Ranges of parameters by name, in the units in which they are printed; as text, by commas.

    Examples:
        >>> held = Constraints.parse("L_0=1.69, s=.2:1")
        >>> str(held), held.ranges["s"]
        ('L_0=1.69, s=0.2:1', (0.2, 1.0))
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: "Constraints | str") -> "Constraints":
        """Of NAME=VALUE and NAME=LOW:HIGH, joined by commas.

        Raises:
            InputError: a part is neither, or a name stands twice.
        """
        if isinstance(text, Constraints):
            return text
        ranges: dict[str, tuple[float, float]] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            name, _, numbers = part.partition("=")
            try:
                ends = [float(end) for end in numbers.split(":")]
            except ValueError:
                ends = []
            if not (
                name and len(ends) in (1, 2) and np.isfinite(ends).all() and ends[0] <= ends[-1]
            ):
                raise InputError(
                    f"{part}: held; write NAME=VALUE or NAME=LOW:HIGH, of finite numbers in order"
                )
            if name in ranges:
                raise InputError(f"{part}: {name} is held twice; leave one out")
            ranges[name] = ends[0], ends[-1]
        return cls(ranges)

    def __str__(self) -> str:
        """What `parse` takes."""
        each = ((name, dict.fromkeys(ends)) for name, ends in self.ranges.items())
        return ", ".join(f"{name}={':'.join(map(_text, ends))}" for name, ends in each)

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self.ranges)

    def check(self, known: Sequence[str], law: str) -> None:
        """Raises InputError of a parameter that the law has not."""
        for name in (name for name in self.ranges if name not in known):
            have = ", ".join(dict.fromkeys(known))
            raise InputError(f"{name}: held, but {law} has no such parameter; it has {have}")

    def box(self, box: Box, names: Sequence[str], decode: Decode, law: str) -> Box:
        """The box [P] of fitted numbers, narrowed to the ranges of the names that it has.

        Raises:
            InputError: a range lies outside of where the law is looked for, or its parameter
                follows from several fitted numbers.
        """
        box = np.array(box[0], float), np.array(box[1], float)
        left = [name for name in names if name in self.ranges]
        while left:
            moved = {name: _moved_by(names.index(name), box, decode) for name in left}
            name = min(left, key=lambda one: len(moved[one]))
            if len(moved[name]) > 1:
                alone = [n for i, n in enumerate(names) if len(_moved_by(i, box, decode)) == 1]
                raise InputError(
                    f"{name}: held, but {law} has it from several numbers; hold {', '.join(alone)}"
                )
            _narrow(name, self.ranges[name], names.index(name), moved[name], box, decode, law)
            left.remove(name)
        return box


def _text(x: float) -> str:
    """As short as reads back."""
    return short if float(short := f"{x:g}") == x else repr(x)


def _with(box: Box, i: int, x: float) -> np.ndarray:
    """The middle of a box, but for one number."""
    return np.where(np.arange(len(box[0])) == i, x, (box[0] + box[1]) / 2)


def _moved_by(j: int, box: Box, decode: Decode) -> list[int]:
    """The fitted numbers that are free and that parameter j follows from."""
    own, free = decode((box[0] + box[1]) / 2)[j], np.flatnonzero(box[0] < box[1])
    ends = {int(i): decode(_with(box, int(i), box[1][i]))[j] for i in free}
    return [i for i, end in ends.items() if not np.isclose(end, own, rtol=1e-12, atol=0)]


def _narrow(
    name: str,
    wanted: tuple[float, float],
    j: int,
    moved: list[int],
    box: Box,
    decode: Decode,
    law: str,
) -> None:
    from scipy.optimize import brentq  # of fits that are held

    i = moved[0] if moved else 0

    def value(x: float) -> float:
        return float(decode(_with(box, i, x))[j])

    edges = float(box[0][i]), float(box[1][i])
    (least, lowest), (most, highest) = sorted((value(x), x) for x in edges)
    slack = 1e-9 * max(abs(least), abs(most))
    low, high = wanted
    if high < least - slack or low > most + slack:
        given = ":".join(f"{x:.6g}" for x in dict.fromkeys(wanted))
        span = " to ".join(f"{x:.6g}" for x in dict.fromkeys((least, most)))
        raise InputError(
            f"{name}: held at {given}, but {law} is looked for at {span}; choose there"
        )
    if moved:
        ends = [
            lowest if x <= least else highest if x >= most
            else brentq(lambda at: value(at) - x, *edges, xtol=1e-14)  # noqa: B023
            for x in wanted
        ]  # fmt: skip
        box[0][i], box[1][i] = sorted(ends)


FREE = Constraints()
"""Nothing is held."""
