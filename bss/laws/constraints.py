"""Constraints of a law by a user: parameters at a value, or within bounds, by their printed names.

A range is translated into the box of the fitted numbers by the law's own decoding, so that any
parameter that follows from one fitted number can be constrained (derived here).
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
        >>> fixed = Constraints.parse("L_0=1.69, s=.2:1")
        >>> str(fixed), fixed.ranges["s"]
        ('L_0=1.69, s=0.2:1', (0.2, 1.0))
    """

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: "Constraints | str") -> "Constraints":
        """Return the constraints NAME=VALUE and NAME=LOW:HIGH, joined by commas.

        Raises:
            InputError: if a part is neither, or a name occurs twice.
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
        """Return the text that `parse` takes."""
        each = ((name, dict.fromkeys(ends)) for name, ends in self.ranges.items())
        return ", ".join(f"{name}={':'.join(map(_text, ends))}" for name, ends in each)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.ranges)

    def check(self, known: Sequence[str], law: str) -> None:
        """Raise InputError of a parameter that the law does not have."""
        for name in (name for name in self.ranges if name not in known):
            have = ", ".join(dict.fromkeys(known)) or "none to fix"
            raise InputError(f"{name}: held, but {law} has no such parameter; it has {have}")

    def box(self, box: Box, names: Sequence[str], decode: Decode, law: str) -> Box:
        """Return the box [P] of fitted numbers, narrowed to the ranges of the names that it has.

        Raises:
            InputError: if a range lies outside of the box, or its parameter follows from several
                fitted numbers.
        """
        box = np.array(box[0], float), np.array(box[1], float)
        moved = {name: _moved_by(i, box, decode) for i, name in enumerate(names)}
        for name in (name for name in names if name in self.ranges):
            if len(moved[name]) > 1:
                alone = ", ".join(one for one, by in moved.items() if len(by) == 1)
                raise InputError(
                    f"{name}: held, but {law} has it from several numbers; hold {alone}"
                )
            j = names.index(name)
            i = moved[name][0] if moved[name] else 0
            values = [float(decode(_with(box, i, end[i]))[j]) for end in box]
            self._check_inside(name, values, law)
            if moved[name]:
                _narrow(self.ranges[name], values, i, j, box, decode)
        return box

    def _check_inside(self, name: str, values: Sequence[float], law: str) -> None:
        """Raise InputError if the range of a name is outside of its values in the box."""
        (low, high), least, most = self.ranges[name], min(values), max(values)
        slack = 1e-9 * max(abs(least), abs(most))
        if high < least - slack or low > most + slack:
            given = ":".join(f"{x:.6g}" for x in dict.fromkeys((low, high)))
            span = " to ".join(f"{x:.6g}" for x in dict.fromkeys((least, most)))
            raise InputError(
                f"{name}: held at {given}, but {law} is looked for at {span}; choose there"
            )


def _text(x: float) -> str:
    """Return a number as text, as short as reads back."""
    return short if float(short := f"{x:g}") == x else repr(x)


def _with(box: Box, i: int, x: float) -> np.ndarray:
    """Return the middle of a box, with number i at x."""
    return np.where(np.arange(len(box[0])) == i, x, (box[0] + box[1]) / 2)


def _moved_by(j: int, box: Box, decode: Decode) -> list[int]:
    """Return the free fitted numbers that parameter j follows from."""
    own, free = decode((box[0] + box[1]) / 2)[j], np.flatnonzero(box[0] < box[1])
    ends = {int(i): decode(_with(box, int(i), box[1][i]))[j] for i in free}
    return [i for i, end in ends.items() if not np.isclose(end, own, rtol=1e-12, atol=0)]


def _narrow(
    wanted: tuple[float, float], values: list[float], i: int, j: int, box: Box, decode: Decode
) -> None:
    """Narrow number i of the box so that parameter j, with these values at its ends, is wanted."""
    from scipy.optimize import brentq  # only if parameters are constrained

    (least, lowest), (most, highest) = sorted(zip(values, (box[0][i], box[1][i]), strict=True))

    def place(x: float) -> float:
        if not least < x < most:
            return lowest if x <= least else highest
        edges = sorted((lowest, highest))
        return brentq(lambda at: float(decode(_with(box, i, at))[j]) - x, *edges, xtol=1e-14)

    box[0][i], box[1][i] = sorted(map(place, wanted))


FREE = Constraints()
"""No constraints."""
