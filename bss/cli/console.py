"""Tables on a terminal: no wider than it is, no number cut, and columns left out are named."""

from collections.abc import Iterator

from bss.cells import Table


def lines(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table. One wider than the terminal is printed without its last columns.

    If no more than half of the columns fit, each value has a separate line.

    Examples:
        >>> table = Table("runs", ("run", "tokens", "loss"), [("a", "1,000", "1.9 ± 0.1")])
        >>> print(*lines(table, 40), sep="\\n")
        runs
         run   tokens        loss
        ──────────────────────────
         a      1,000   1.9 ± 0.1
        <BLANKLINE>
        >>> print(*lines(table, 20), sep="\\n")
        runs
         run   tokens
        ──────────────
         a      1,000
        (not shown: loss; a wider terminal or --json has it)
        <BLANKLINE>
        >>> print(*lines(table, 12), sep="\\n")
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
    count = len(widths)
    while count and sum(widths[:count]) + 3 * count - 1 > width:
        count -= 1
    if 2 * count > len(widths):
        for i, row in enumerate(cells):
            numbers = map("   {:>{}}".format, row[1:count], widths[1:count])
            text = f" {row[0]:<{widths[0]}}" + "".join(numbers)
            yield text.rstrip()
            if i == 0:
                yield "─" * (len(text) + 1)
        if left := cells[0][count:]:
            yield f"(not shown: {', '.join(left)}; a wider terminal or --json has it)"
    else:
        first = max(map(len, cells[0]))
        for i, row in enumerate(cells[1:]):
            if i:
                yield ""
            for column, cell in zip(cells[0], row, strict=True):
                if cell not in ("", "–"):
                    yield f"{column:<{first}}   {cell}"
    yield ""
