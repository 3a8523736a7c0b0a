"""Text cells: tables, and estimates as every command, page and advice prints them."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from bss.errors import printable
from bss.units import rounded_tokens

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """A table for people: the first column is text, the others are numbers.

    Attributes:
        title: Title of the table; "" for none.
        columns: their names.
        rows: cells, row by row.
        strong: rows to set in bold.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    strong: Sequence[bool] = ()

    @classmethod
    def of_records(
        cls,
        title: str,
        records: Iterable[Mapping[Any, Any]],
        columns: Sequence[str] = (),
        strong: Sequence[bool] = (),
        headers: Mapping[str, str] | None = None,
    ) -> "Table":
        """Return a table of records as they are in JSON.

        Args:
            title: Title of the table.
            records: a row each. Columns whose name begins with "tokens" or "params" are counts,
                printed as 1.25B; missing values are dashes.
            columns: keys that are shown; by default all. A column of missing values is left out.
            strong: rows to set in bold.
            headers: of some keys; others have spaces for the underscores of the key.

        Examples:
            >>> rows = [{"target_loss": 1.7, "tokens": 125_000, "low": None}]
            >>> table = Table.of_records("points", rows)
            >>> table.columns, table.rows
            (['target loss', 'tokens'], [['1.7', '125K']])
        """
        rows = [*records]
        names = columns or dict.fromkeys(key for row in rows for key in row)
        known = [key for key in names if any(not _is_missing(row.get(key)) for row in rows)]
        heads = [(headers or {}).get(key, _header(str(key))) for key in known]
        cells = [[_cell(str(key), row.get(key)) for key in known] for row in rows]
        return cls(title, heads, cells, strong)

    @classmethod
    def of_frame(cls, title: str, frame: "pd.DataFrame", strong: Sequence[bool] = ()) -> "Table":
        """Return a table of a frame, as `of_records` has it."""
        return cls.of_records(title, frame.to_dict("records"), [*frame], strong)


def fit_tables(fit: Any) -> list[Table]:
    """Return the tables of a fit of any kind: the summary, then the details."""
    title = f"{fit.law_name}, {fit.level:.0%} intervals"
    return [Table.of_frame(*one) for one in ({title: fit.summary()} | fit.details()).items()]


def html(table: Table) -> str:
    """Return a table as HTML, with names as text."""
    left = "text-align: left"  # in view, also if a wide table is scrolled
    title = f'<caption style="{left}">{escape(table.title)}</caption>' if table.title else ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in table.columns)
    rows = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in table.rows]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def fit_html(fit: Any) -> str:
    """Return the answer, the tables and the warnings of a fit, as HTML."""
    return lines_html(fit.answer, fit.warnings, fit_tables(fit))


def lines_html(answer: str, warnings: Iterable[str], tables: Iterable[Table] = ()) -> str:
    """Return an answer, tables and warnings as HTML."""
    lines = [f"<li>{escape(printable(text))}</li>" for text in warnings]
    below = f"<p>Warnings:</p><ul>{''.join(lines)}</ul>" if lines else ""
    return f"<p><b>{escape(printable(answer))}</b></p>{''.join(map(html, tables))}{below}"


def _is_missing(value: Any) -> bool:
    if isinstance(value, str | list | tuple):
        return not value
    return value is None or (isinstance(value, float) and math.isnan(value))


def _header(column: str) -> str:
    """Return the name of a column with spaces for underscores, except in symbols such as B_opt."""
    return re.sub(r"(?<![A-Z])_", " ", column) if column.isascii() else column


def _cell(column: str, value: Any) -> str:
    """Return a value as text, by the name of its column."""
    if _is_missing(value):
        return "–"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "; ".join(printable(str(one)) for one in value)
    if column.startswith(("tokens", "params")):
        return rounded_tokens(value, 4)
    return f"{value:,}" if isinstance(value, int) else number(float(value))


def estimate(one: Any, unit: float = 1.0, digits: int = 4) -> str:
    """Return an estimate with its interval, in a unit; without a value its bounds, or a dash.

    `one` has value, low and high; None if unknown.

    Examples:
        >>> from bss.laws.base import Estimate
        >>> estimate(Estimate(4.2, 3.9, 4.6)), estimate(Estimate(None, None, 2215.4), digits=3)
        ('4.2 (3.9 – 4.6)', '≤ 2,215')
        >>> estimate(Estimate(None, 2, 9)), estimate(Estimate(64, 32), 32), estimate(None)
        ('between 2 and 9', '2 (≥ 1)', '–')
    """
    if one is None:
        return "–"
    value = _in_units(one.value, unit, digits)
    low = _in_units(one.low, unit, digits)
    high = _in_units(one.high, unit, digits)
    if low and high:
        return f"{value} ({low} – {high})" if value else f"between {low} and {high}"
    bound = ""
    if low:
        bound = f"≥ {low}"
    elif high:
        bound = f"≤ {high}"
    if value:
        return f"{value} ({bound})" if bound else value
    return bound or "–"


def _in_units(value: float | None, unit: float, digits: int) -> str:
    """Return a number of units as text; "" if it is unknown."""
    if value is None or not math.isfinite(value):
        return ""
    return number(value / unit, digits)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number to a few digits, a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
