"""The output of a command, printed or saved."""

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from bss.cells import Table
from bss.cli.console import lines
from bss.errors import InputError, printable
from bss.files import check_output, finite, replacing

PICTURES = (".png", ".svg", ".pdf")
PIPED = 140  # columns where neither COLUMNS nor a terminal says how many
OUTPUT = Group("Output", sort_key=9)


def _writable(*suffixes: str) -> Parameter:
    """Return how a file is checked that a command will write, before anything is computed."""

    def check(_: Any, path: Path | None) -> None:
        if path is None:
            return
        if suffixes and path.suffix not in suffixes:
            raise InputError(f"{path}: expected a file name in {', '.join(suffixes)}")
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"{path}: expected the name of a file in a directory that exists")
        check_output(path)

    return Parameter(validator=check)


Picture = Annotated[Path, _writable(*PICTURES)]
"""A file for a figure."""

OutputFile = Annotated[Path, _writable()]
"""A file in a directory that exists."""


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class Show:
    """Options for printing the result.

    Attributes:
        json: print one JSON object.
    """

    json: bool = False


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class ShowPlot(Show):
    """Options for printing the result, and for saving a figure of it.

    Attributes:
        plot: save a figure (.png, .svg, .pdf).
    """

    plot: Picture | None = None


@dataclass(frozen=True)
class Output:
    """The result of a command.

    Attributes:
        json: what --json prints.
        answer: the first line: the answer itself.
        tables: shown below it.
        warnings: shown below the tables, a line each.
        notes: lines at the end.
        text: printed instead of all of these (an export).
        figure: makes the figure that --plot saves.
        status: exit status.
    """

    json: Mapping[str, Any]
    answer: str = ""
    tables: Sequence[Table] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    text: str | None = None
    figure: Callable[[], Any] | None = None
    status: int = 0


def emit(output: Output, show: Show) -> None:
    """Print the result, then save its figure if requested."""
    if show.json:
        print(json.dumps(finite(output.json), indent=1, allow_nan=False))
    elif output.text is not None:
        print(output.text)
        for one in output.warnings:
            print(f"warning: {one}", file=sys.stderr)
    else:
        if output.answer:
            print(printable(output.answer, keep="\n"), end="\n\n" if output.tables else "\n")
        width = shutil.get_terminal_size((PIPED, 24)).columns
        for table in output.tables:
            print(*lines(table, width), sep="\n")
        for line in (*output.notes, *(f"warning: {one}" for one in output.warnings)):
            print(printable(line, keep="\n"))
    sys.stdout.flush()
    if isinstance(show, ShowPlot) and show.plot:
        if output.figure is None:
            raise InputError(f"--plot {show.plot}: this command has no figure; leave it out")
        with replacing(show.plot) as temporary:
            output.figure().savefig(temporary, format=show.plot.suffix.removeprefix("."))


def figure(name: str, *values: Any, **options: Any) -> Callable[[], Any]:
    """Return a function that draws a figure of `bss.plots`, named as file.function."""

    def draw() -> Any:
        file, function = name.split(".")
        return getattr(importlib.import_module(f"bss.plots.{file}"), function)(*values, **options)

    return draw
