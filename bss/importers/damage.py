"""What a kill, a crash or a full disk left of a file: lines that are no rows, an end cut off.

A reader refuses a broken line with `refuse_line`. The file is then read again without it, so that
readers need not know; those that take lines from `lines_of` never see it. Few are left out so.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from bss.errors import InputError
from bss.importers.log import Log

SHARE, MOST = 0.03, 100
"""Broken lines that are left out, of a file's rows and at all; one always."""


class BrokenLines(InputError):
    """Lines that are no rows, and why, by their numbers from 1 on."""

    def __init__(self, file: Path, lines: Mapping[int, str]):
        number, reason = next(iter(lines.items()))
        super().__init__(f"{file}, line {number}: {reason}")
        self.lines = lines


@dataclass
class Damage:
    """What is not read of a file.

    Attributes:
        lines: that are left out, and why.
        stop: the first line that is not read any more.
        end: why the file's end is left out; nothing where it is whole.
    """

    lines: dict[int, str] = field(default_factory=dict)
    stop: float = float("inf")
    end: str = ""

    def leaves_out(self, number: int) -> bool:
        """Whether a line is not read."""
        return number in self.lines or number >= self.stop


_READING: ContextVar[Damage] = ContextVar("reading")


def damage() -> Damage:
    """What is left out of the file that is being read."""
    return _READING.get(Damage())


def refuse_line(file: Path, line: int, reason: str) -> NoReturn:
    """Raises BrokenLines of one line."""
    raise BrokenLines(file, {line: reason})


def read_damaged(file: Path, read: Callable[[], list[Log]], *, strict: bool = False) -> list[Log]:
    """The logs of a file that may be damaged; their notes say what was left out.

    Args:
        file: of the logs.
        read: its logs; called again where a line was refused.
        strict: refuse any damage.

    Raises:
        InputError: the file is refused, or more than a few of its lines are.
    """
    lines: dict[int, str] = {}
    while True:
        try:
            logs, left = _without(read, Damage(dict(lines)))
            break
        except BrokenLines as broken:
            if len(lines) >= MOST or broken.lines.keys() <= lines.keys():
                raise _too_many(file, lines) from None
            lines |= broken.lines
        except InputError as error:
            first = min(lines, default=0)
            also = f"; line {first}: {lines[first]}" if lines else ""
            raise InputError(f"{error}{also}") from None
    count = sum(map(_rows, logs))
    if lines and _ends_before(read, lines, max(lines), count):
        left.end = left.end or f"is cut off in line {max(lines)}; read to there"
        del lines[max(lines)]
    if len(lines) > (0 if strict else max(1, SHARE * (count + len(lines)))):
        raise _too_many(file, lines)
    if strict and left.end:
        raise InputError(f"{file}: {left.end}")
    notes = [left.end] if left.end else []
    if lines:
        first = min(lines)
        which = f"line {first}" if len(lines) == 1 else f"{len(lines)} lines, first line {first},"
        notes.append(f"{which} {lines[first].partition(';')[0]}; left out")
    return [replace(log, cut=bool(left.end), notes=(*notes, *log.notes)) for log in logs]


def _without(read: Callable[[], list[Log]], left: Damage) -> tuple[list[Log], Damage]:
    token = _READING.set(left)
    try:
        return read(), left
    finally:
        _READING.reset(token)


def _ends_before(
    read: Callable[[], list[Log]], lines: Mapping[int, str], last: int, count: int
) -> bool:
    """Whether no row is behind the last of the broken lines."""
    try:
        logs, _ = _without(read, Damage(dict(lines), stop=last))
    except InputError:
        return False
    return sum(map(_rows, logs)) == count


def _rows(log: Log) -> int:
    return len(next(iter(log.rows.values()), ()))


def _too_many(file: Path, lines: Mapping[int, str]) -> InputError:
    first = min(lines)
    others = f"; {len(lines) - 1} more lines are broken" if len(lines) > 1 else ""
    return InputError(f"{file}, line {first}: {lines[first]}{others}")
