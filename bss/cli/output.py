"""What a command gives back, and how it is shown."""

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bss.cells import Table
from bss.errors import InputError
from bss.units import format_tokens


@dataclass(frozen=True)
class Output:
    """The result of a command.

    Attributes:
        json: what --json prints.
        tables: what people read.
        notes: lines under the tables.
        text: printed as it is, in place of the tables (an export).
        figure: makes the picture that --plot saves.
    """

    json: Mapping[str, Any]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    text: str | None = None
    figure: Callable[[], Any] | None = field(default=None)


def add_output_arguments(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Any], *, plot: bool = False
) -> None:
    """Adds what is run, --json and, where a picture helps, --plot."""
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if plot:
        parser.add_argument("--plot", metavar="FILE", help="save a picture (.png, .svg, .pdf)")


def option(name: str) -> str:
    """A field's name as the command line writes it: "seq_len" as --seq-len."""
    return f"--{name.replace('_', '-')}"


def drawing(name: str, *values: Any, **options: Any) -> Callable[[], Any]:
    """Draws a figure of `bss.plots`, named as file.function, once it is asked for."""

    def draw() -> Any:
        file, function = name.split(".")
        return getattr(importlib.import_module(f"bss.plots.{file}"), function)(*values, **options)

    return draw


def emit(output: Output, *, as_json: bool, plot: str | None) -> None:
    """Prints the result, and saves its picture where asked."""
    if plot:
        _save(output, Path(plot))
    if as_json:
        print(json.dumps(finite(output.json), indent=1, allow_nan=False))
    elif output.text is not None:
        print(output.text)
    else:
        _print_tables(output)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Shows what is done in one line of a terminal's stderr, which is gone in the end."""
    shown, erase = sys.stderr.isatty(), "\r\033[K"

    def report(text: str) -> None:
        if shown:
            print(f"{erase}{text} …", end="", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        if shown:
            print(erase, end="", file=sys.stderr, flush=True)


def finite(value: Any) -> Any:
    """The value with infinities and NaNs as null, which is all that JSON can say of them."""
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float | None, digits: int = 4) -> str:
    """A number to a few digits, a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def with_error(value: float | None, error: float | None) -> str:
    """A number with its standard error to two digits, where that is known.

    Examples:
        >>> with_error(1.87036, 0.01816), with_error(1.60071, None)
        ('1.870 ± 0.018', '1.601')
    """
    if value is None or not error:
        return number(value)
    decimals = max(1 - math.floor(math.log10(error)), 0)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def measured_tokens(value: float | None) -> str:
    """A measured count of tokens to four digits, a dash for none.

    Examples:
        >>> measured_tokens(146_109.3), measured_tokens(None)
        ('146.1K', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return format_tokens(int(float(f"{value:.4g}")))


def estimate(one: Any) -> str:
    """An estimate (value, low, high) with its interval; a bound or a dash where it has no value."""
    if one is None:
        return "–"
    value, low, high = one.value, one.low, one.high
    if value is not None:
        unknown = low is None and high is None
        return number(value) + ("" if unknown else f" ({number(low)} – {number(high)})")
    if low is not None:
        return f"> {number(low)}"
    return f"< {number(high)}" if high is not None else "–"


def _save(output: Output, path: Path) -> None:
    if output.figure is None:
        raise InputError(f"--plot {path}: this command has no picture here; leave it out")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: expected a file name in .png, .svg or .pdf")
    output.figure().savefig(path)


def _print_tables(output: Output) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    width = None if sys.stdout.isatty() else 140
    console = Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)
    for table in output.tables:
        shown = RichTable(title=table.title, box=box.SIMPLE_HEAD, title_justify="left")
        for position, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if position == 0 else "right")
        for row in table.rows:
            shown.add_row(*(str(cell) for cell in row))
        console.print(shown)
    for note in output.notes:
        console.print(note, soft_wrap=True)
