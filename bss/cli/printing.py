"""Tables of text for people, as wide as the terminal and no wider, with no number cut.

Columns that do not fit stand under their row, each behind its name: the last ones, as tables have
what matters least there. Counts of tokens in a column are of one unit.
"""

import itertools
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from bss.cells import Table
from bss.units import in_one_unit

PIPED = 140
"""Columns where neither a terminal nor COLUMNS says how many."""
_GAP, _INDENT = 3, 2
_WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def lines(table: Table, width: int) -> Iterator[str]:
    """The lines of a table, without spaces at their ends.

    A word wider than the width is whole on a line of its own.

    Examples:
        >>> table = Table("runs", ("run", "tokens", "loss"), [("a", "1,000", "1.9 ± 0.1")])
        >>> print(*lines(table, 21), sep="\\n")
        runs
        <BLANKLINE>
          run  tokens
         ─────────────
          a     1,000
            loss 1.9 ± 0.1
        <BLANKLINE>
    """
    columns = [str(name) for name in table.columns]
    rows = list(zip(*map(in_one_unit, zip(*table.rows, strict=True)), strict=True))
    widths = [max(map(places, cells)) for cells in zip(columns, *rows, strict=True)]
    gap = _GAP if _ends(widths, _GAP)[-1] < width else _GAP - 1
    ends = _ends(widths, gap)
    shown = max(sum(end < width for end in ends), 1)
    if table.title:
        yield from (*textwrap.wrap(table.title, max(width, 1), **_WHOLE), "")
    yield _aligned(columns[:shown], widths, gap)
    yield " " + "─" * ends[shown - 1]
    for row in rows:
        yield _aligned(row[:shown], widths, gap)
        yield from _under(columns[shown:], row[shown:], width)
    yield ""


def width_of_output() -> int:
    """Columns of standard output: COLUMNS, else those of a terminal, else `PIPED`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size((PIPED, 24)).columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else PIPED


def places(text: str) -> int:
    """Places that a text takes on a terminal: two a wide character, none a combining one."""
    return sum(
        0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF")
        for one in text
    )


def _ends(widths: Sequence[int], gap: int) -> list[int]:
    """The last place of each column, and of the rule under it, from 0."""
    return [end - gap + _INDENT for end in itertools.accumulate(width + gap for width in widths)]


def _aligned(cells: Sequence[str], widths: Sequence[int], gap: int) -> str:
    """The first to the left, the others to the right."""
    spaces = [" " * (width - places(cell)) for cell, width in zip(cells, widths, strict=False)]
    first, *others = cells
    right = [space + cell for cell, space in zip(others, spaces[1:], strict=True)]
    return " " * _INDENT + (" " * gap).join([first + spaces[0], *right]).rstrip()


def _under(columns: Sequence[str], cells: Sequence[str], width: int) -> Iterator[str]:
    """What did not fit beside, behind its name, but for what is not there."""
    named = zip(columns, cells, strict=True)
    parts = [f"{name} {cell}".strip() for name, cell in named if cell not in ("", "–")]
    line, room = "", max(width - 2 * _INDENT, 1)
    for part in parts:
        if line and places(f"{line}, {part},") > room:
            yield f"{' ' * 2 * _INDENT}{line},"
            line = ""
        line = f"{line}, {part}" if line else part
        if places(line) > room:
            *whole, line = textwrap.wrap(line, room, **_WHOLE)
            yield from (f"{' ' * 2 * _INDENT}{one}" for one in whole)
    if line:
        yield f"{' ' * 2 * _INDENT}{line}"
