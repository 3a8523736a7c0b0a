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

from bss.cells import Table, number
from bss.cli.printing import lines, width_of_output
from bss.errors import InputError
from bss.units import rounded_tokens

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Output:
    """The result of a command.

    Attributes:
        json: what --json prints.
        tables: what people read.
        notes: lines under the tables.
        text: printed as it is, in place of the tables (an export).
        figure: makes the picture that --plot saves.
        first: a line above the tables.
    """

    json: Mapping[str, Any]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    text: str | None = None
    figure: Callable[[], Any] | None = field(default=None)
    first: str = ""


def add_output_arguments(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], Any],
    *,
    plot: bool = False,
) -> None:
    """Adds what is run, --json, where a picture helps --plot, and its examples to the help."""
    add_examples(parser, run.__doc__)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if plot:
        parser.add_argument("--plot", metavar="FILE", help="save a picture (.png, .svg, .pdf)")


def add_examples(parser: argparse.ArgumentParser, documented: str | None) -> None:
    """Ends the help with the examples of a docstring; names in capitals are the user's files."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = (documented or "").partition("Examples:\n")[2].strip().splitlines()
    parser.epilog = "\n".join(("examples:", *(f"  {line.strip()}" for line in lines)))


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
    """Print the result, then save its picture if asked for."""
    if as_json:
        print(json.dumps(finite(output.json), indent=1, allow_nan=False))
    elif output.text is not None:
        print(output.text)
    else:
        width = width_of_output()
        if output.first:
            print(output.first)
        for table in output.tables:
            print(*lines(table, width), sep="\n")
        for note in output.notes:
            print(note)
    sys.stdout.flush()
    if plot:
        _save(output, Path(plot))


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse paths that cannot be written, before anything is computed.

    Raises:
        InputError: If the directory of an output file is missing, or a file has a wrong ending.
    """
    files = ("plot", "residuals", *(("out",) if options.command != "sweep" else ()))
    for name in files:
        if isinstance(given := getattr(options, name, None), str | Path):
            path, flag = Path(given), option(name)
            if name == "plot" and path.suffix not in PICTURES:
                raise InputError(f"{flag} {path}: expected a file name in .png, .svg or .pdf")
            if path.suffix and (path.is_dir() or not path.parent.is_dir()):
                reason = "is a directory" if path.is_dir() else f"there is no {path.parent}"
                raise InputError(f"{flag} {path}: {reason}; name a file in a directory")


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


def measured_tokens(value: float | None, before: str = "") -> str:
    """A measured count of tokens to four digits, behind what stands before it; a dash for none.

    Examples:
        >>> measured_tokens(146_109.3), measured_tokens(None)
        ('146.1K', '–')
    """
    if value is None or not math.isfinite(value):
        return f"{before}–"
    return rounded_tokens(value, 4, before)


def _save(output: Output, path: Path) -> None:
    if output.figure is None:
        raise InputError(f"--plot {path}: this command has no picture here; leave it out")
    output.figure().savefig(path)
