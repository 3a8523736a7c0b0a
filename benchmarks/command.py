"""The command line that benchmarks share: cores, seconds, results; mistakes in one line."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import (
    RESULTS,
    Row,
    gpu_users,
    head,
    present_cores,
    save,
    table,
)
from bss.errors import InputError
from bss.provenance import machine


@dataclass(frozen=True)
class Benchmark:
    """The command `python -m benchmarks.NAME`.

    Attributes:
        name: Name of the module, and of its file of results.
        doc: its text for --help.
        measured: function of the options that yields rows; each is printed immediately.
        columns: heads of the table of what was measured.
        cells: Function from a row to lines of the table.
        seconds: Default seconds per row.
        cores: numbers of cores, as in --cores; "" without a choice.
        add: adds other options.
    """

    name: str
    doc: str
    measured: Callable[[Any], Iterator[Row]]
    columns: tuple[str, ...]
    cells: Callable[[Row], Sequence[Sequence[str]]]
    seconds: float
    cores: str = "1"
    add: Callable[[argparse.ArgumentParser], object] = lambda parser: None

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, prints and saves; returns the status of the command."""
        prog = f"python -m benchmarks.{self.name}"
        parser = argparse.ArgumentParser(prog=prog, description=self.doc)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        add = parser.add_argument
        if self.cores:
            text = "numbers of cores, e.g. 1,2; or 'all' available cores"
            add("--cores", default=self.cores, help=text)
        text = "seconds per row after the warm-up; every row has at least a few rounds"
        add("--seconds", type=float, default=self.seconds, help=text)
        add("--rounds", type=int, default=60, help="largest number of rounds per row")
        add("--results", type=Path, default=RESULTS, help="folder of the JSON")
        self.add(parser)
        options = parser.parse_args(arguments)
        try:
            result = self._result(
                options, [prog, *(sys.argv[1:] if arguments is None else arguments)]
            )
        except InputError as error:
            print(f"benchmarks.{self.name}: {error}", file=sys.stderr)
            return 2
        print(self.shown(result))
        save(self.name, result, options.results)
        return 0

    def _result(self, options: argparse.Namespace, command: Sequence[str]) -> Row:
        for name in ("seconds", "rounds"):
            if not (value := getattr(options, name)) > 0:
                raise InputError(f"--{name}: {value:g}; write a positive number")
        if self.cores:
            options.cores = _numbers(options.cores)
        note = gpu_users()
        rows = []
        for row in self.measured(options):
            rows.append(row)
            print("; ".join([*self._lines(row), *notes(row)]), file=sys.stderr, flush=True)
        # The device last: to ask for it takes a GPU's memory.
        return head(" ".join(command), machine(), note=note, table=rows)

    def _lines(self, row: Row) -> list[str]:
        each = [] if "not_measured" in row else self.cells(row)
        return [" | ".join(cells) for cells in each]

    def shown(self, result: Row) -> str:
        """Return a result as text: its table, then what was not measured, and why."""
        rows = result["table"]
        lines = [cells for row in rows if "not_measured" not in row for cells in self.cells(row)]
        under = [result["note"], *(note for row in rows for note in notes(row))]
        head = f"{result['device']}, {result['date'][:10]}, commit {result['commit'] or 'unknown'}"
        return "\n".join([head, table(self.columns, lines), *filter(None, dict.fromkeys(under))])


def notes(row: Row) -> list[str]:
    """Return the missing values of a row with reasons, and its disturbances."""
    on = row.get("shape") or row.get("what") or ""
    cores = row.get("cores")
    on += f" on {cores} core{'s' * (cores > 1)}" if cores else ""
    if "not_measured" in row:
        return [f"{on}: not measured: {row['not_measured']}"]
    found = []
    for name, one in row.get("variants", {}).items():
        for key in ("not_measured", "error"):
            if key in one:
                what = name if key == "not_measured" else f"{on}, {name}"
                found.append(f"{what}: {key.replace('_', ' ')}: {one[key]}")
    if (row.get("apart") or 0) > APART:
        found.append(f"{on}: losses are apart by {row['apart']:.0%}: not the same model")
    if (row.get("others_cpu") or 0) > DISTURBED:
        found.append(f"{on}: others took {row['others_cpu']:.0%} of the cores' time")
    return found


APART = 0.05
"""Losses of one model after a few steps, by other seeds, are nearer than that."""
DISTURBED = 0.05
"""A share of the cores' time that others take; above it the numbers say more of them."""


def machine_cells(row: Row) -> tuple[str, str]:
    """Return the machine's speed in the first and last round, and the share of other processes."""
    products = row["product_gflops"]
    others = row["others_cpu"]
    return f"{products[0]:.0f} → {products[-1]:.0f}", "–" if others is None else f"{others:.0%}"


MACHINE = ("GFLOP/s", "others")
"""Heads of `machine_cells`."""


def pinned(counts: Sequence[int]) -> Iterator[tuple[Row, list[int]]]:
    """For each number of cores the start of a row, and the last of the cores that this may use.

    A row with more cores than exist is marked.
    """
    present = present_cores()
    for count in counts:
        on = present[-count:]
        short = f"this process may use {len(on)}" if len(on) < count else ""
        yield {"cores": count, **({"not_measured": short} if short else {})}, on


def _numbers(text: str) -> list[int]:
    if text == "all":
        return [len(present_cores())]
    try:
        counts = [int(one) for one in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise InputError(f"--cores: {text!r}; write numbers of 1 or more, e.g. 1,2, or all")
    return counts
