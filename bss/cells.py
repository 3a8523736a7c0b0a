"""A table of text cells: what a command prints and a page shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """A table for people: the first column is text, the others are numbers.

    Attributes:
        title: what it is of; empty where its place says so.
        columns: their names.
        rows: cells, row by row.
        strong: rows to set in bold.
        left_out: rows that are not shown.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    strong: Sequence[bool] = ()
    left_out: int = 0

    @classmethod
    def of(
        cls,
        title: str,
        entries: Iterable[T],
        cells: Mapping[str, Callable[[T], Any]],
        strong: Sequence[bool] = (),
    ) -> "Table":
        """A row for each entry: what stands in each column, by the column's name."""
        rows = [[cell(one) for cell in cells.values()] for one in entries]
        return cls(title, [*cells], rows, strong)
