"""Tables on a terminal: as wide as it is, and no number cut."""

import io
import os
import shutil
import sys
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from bss.cells import Table

PIPED = 140  # columns where neither a terminal nor COLUMNS says how many


def lines(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table; of one wider than the terminal, a line per row and column.

    Examples:
        >>> table = Table("runs", ("run", "tokens", "loss"), [("a", "1,000", "1.9 ± 0.1")])
        >>> print(*lines(table, 40), sep="\\n")
        runs
         run   tokens        loss
        ──────────────────────────
         a      1,000   1.9 ± 0.1
        <BLANKLINE>
        >>> print(*lines(table, 21), sep="\\n")
        runs
        run      a
        tokens   1,000
        loss     1.9 ± 0.1
        <BLANKLINE>
    """
    if table.title:
        yield table.title
    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True)
    for i, column in enumerate(table.columns):
        shown.add_column(str(column), justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(str(cell) for cell in row))
    console = Console(width=10_000, file=io.StringIO(), color_system=None, markup=False)
    if console.measure(shown).maximum <= width:
        with console.capture() as capture:
            console.print(shown)
        yield from (line.rstrip() for line in capture.get().splitlines())
    else:
        first = max(len(str(column)) for column in table.columns)
        for i, row in enumerate(table.rows):
            if i:
                yield ""
            for column, cell in zip(table.columns, row, strict=True):
                if cell not in ("", "–"):
                    yield f"{column:<{first}}   {cell}"
    yield ""


def width_of_output() -> int:
    """Return the columns of standard output: COLUMNS, else those of a terminal, else `PIPED`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size((PIPED, 24)).columns
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else PIPED
