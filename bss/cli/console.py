"""Tables on a terminal: as wide as it is, and no number cut."""

from collections.abc import Iterator

from bss.cells import Table


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
    cells = [[str(cell) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + 3 * len(widths) - 1 <= width:
        head, *rows = [
            f" {row[0]:<{widths[0]}}" + "".join(map("   {:>{}}".format, row[1:], widths[1:]))
            for row in cells
        ]
        yield from (head.rstrip(), "─" * (len(head) + 1), *(row.rstrip() for row in rows))
    else:
        first = max(map(len, cells[0]))
        for i, row in enumerate(cells[1:]):
            if i:
                yield ""
            for column, cell in zip(cells[0], row, strict=True):
                if cell not in ("", "–"):
                    yield f"{column:<{first}}   {cell}"
    yield ""
