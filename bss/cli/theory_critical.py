"""bss theory critical: the critical batch of SGD on power-law least squares, exactly."""

import argparse

from bss.cli.output import Output, Table, add_output_arguments, number
from bss.errors import InputError
from bss.theory.critical import CriticalTable, critical_batches
from bss.theory.least_squares import AVERAGES, LeastSquares, Procedure
from bss.units import format_tokens, parse_tokens

MOST_DATA = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss theory critical`."""
    add = parser.add_argument
    add("--capacity", type=float, required=True, help="a > 1: eigenvalues i^-a")
    add("--source", type=float, required=True, help="b > 1: eigenvalue times error i^-b")
    add("--data", required=True, help="budgets in samples: doublings as 2^8:2^14")
    add("--modes", type=int, default=400, help="of the spectrum")
    add("--noise", type=float, default=1.0, help="variance of the label noise")
    add("--overhead", type=float, default=0.2, help="samples above a budget, 0.2 for 20%%")
    add("--rate-cap", type=float, default=0.5, help="largest step size over its stable limit")
    add("--average", default="start", choices=AVERAGES, help="of the iterates")
    add_output_arguments(parser, plot=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Output:
    """Measures critical batches."""
    task = LeastSquares(options.capacity, options.source, options.modes, options.noise)
    procedure = Procedure(options.overhead, options.rate_cap, average=options.average)
    table = critical_batches(task, _doublings(options.data), procedure)
    payload = {
        "kind": "theory_critical",
        "points": [point._asdict() for point in table.points],
        "exponent": {"value": table.exponent, "low": table.low, "high": table.high, "level": 0.95},
        "theory": table.theory,
        "overhead": procedure.overhead,
        "rate_cap": procedure.rate_cap,
        "average": procedure.average,
    }
    rows = [(format_tokens(at.data), number(at.risk), number(at.cbs)) for at in table.points]
    title = f"capacity {task.capacity:g}, source {task.source:g}; average from {procedure.average}"
    columns = ("samples", "least excess risk", "critical batch")
    between = f"{number(table.low, 3)} – {number(table.high, 3)}"
    note = (
        f"exponent over the last budgets {table.exponent:.3f} ({between}, scatter about a line); "
        f"theory {table.theory:.3f}"
    )
    return Output(
        payload, [Table(title, columns, rows)], [note], figure=lambda: _figure(task, table)
    )


def _doublings(text: str) -> list[int]:
    ends = [parse_tokens(part, field="--data") for part in text.split(":")]
    if len(ends) != 2 or not 4 <= ends[0] < ends[1] <= MOST_DATA:
        raise InputError(f"--data {text!r}: expected doublings as 2^8:2^14, from 4 up to 2^20")
    budgets = [ends[0]]
    while 2 * budgets[-1] <= ends[1]:
        budgets.append(2 * budgets[-1])
    return budgets


def _figure(task: LeastSquares, table: CriticalTable):
    from bss.plots.critical import least_squares_figure

    return least_squares_figure({f"a = {task.capacity:g}, b = {task.source:g}": table})
