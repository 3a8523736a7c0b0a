"""bss predict: what a fitted law says of a run that it has not seen, with an interval.

Each kind of fit answers in a file of its own, registered here. What is predicted can be written
down before the runs are trained, and scored after.
"""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from bss.cli.output import Output, add_output_arguments, number
from bss.cli.reading import add_columns_argument
from bss.cli.saved import read_fit
from bss.errors import InputError

REGISTERED = ("ids", "metric", "baseline", "exclude", "seed")
"""Options that only --register has."""

ASKED = {
    "table": ("params", "tokens", "batch", "seq_len"),
    "curve": (
        *("batch", "tokens", "lr", "warmup", "decay", "shape", "runs", "columns", "register"),
        *REGISTERED,
    ),
    "es": ("loss", "batch"),
    "critical": ("params", "tokens"),
}
"""Per kind of fit, the options that say what is asked; others are refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss predict`."""
    add = parser.add_argument
    add("--from", dest="fit", type=Path, help="a fit, as `bss fit --json` prints it")
    add("--params", help="of a table or critical fit: non-embedding parameters, as 350M")
    add("--tokens", help="budget, as 30B")
    add("--batch", help='sequences, as 256; of a curve fit also a schedule, as "0:8 2M:16"')
    add("--seq-len", type=int, help="of a table fit: tokens per sequence")
    add("--lr", type=float, help="of a curve fit: peak learning rate")
    add("--warmup", help="of a curve fit: tokens, or a percentage of the budget")
    add("--decay", help="of a curve fit: tokens, or a percentage of the budget")
    add("--shape", help="of a curve fit: how the rate decays, as linear or cosine")
    add("--runs", type=Path, help="of a curve fit: a table with batch and lr; loss is optional")
    add_columns_argument(parser)
    add("--loss", type=float, help="of an es fit: the target loss, in nats")
    add("--extrapolate", action="store_true", help="answer beyond what the fit was tested for")
    add_registration_arguments(parser)
    add_output_arguments(parser, run, plot=True)


def add_registration_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that write predictions down before their runs are trained, and score them after."""
    add = parser.add_argument_group("written first").add_argument
    add("--register", metavar="NAME", help="of a curve fit: write what is predicted to a file")
    add("--predictions", type=Path, default=Path("results/predictions"), help="directory of these")
    add("--ids", metavar="IDS", help="runs of the schedule asked, one a seed, with commas between")
    add("--metric", help="the final loss that counts, as test_loss; eval_loss by default")
    add("--baseline", metavar="NAME=LOSS", action="append", help="or =COLUMN of --runs; repeatable")
    add("--exclude", metavar="TEXT", action="append", help="what is left out, and why; repeatable")
    add("--seed", type=int, help="that the schedules were drawn from")
    add("--score", metavar="NAME", help="a registration against --runs, a directory or a table")


def run(options: argparse.Namespace) -> Output:
    """Answers by the kind of the fit; or scores what was registered."""
    options_of = {name for names in ASKED.values() for name in names}
    if options.score:
        _refuse(options, {"fit", *options_of} - {"runs"}, "leave it out with --score")
        return importlib.import_module("bss.cli.predict_score").scored(options)
    if options.fit is None:
        raise InputError("--from: missing; give a fit, or a registration to --score")
    if not options.register:
        _refuse(options, {*REGISTERED}, "it is told of a registration; give --register NAME too")
    entry = read_fit(options.fit, "predict", ASKED)
    kind = entry["kind"]
    told = ", ".join(f"--{name}" for name in ASKED[kind]).replace("_", "-")
    _refuse(options, options_of - {*ASKED[kind]}, f"a fit of kind {kind} is asked with {told}")
    return importlib.import_module(f"bss.cli.predict_{kind}").predicted(entry, options)


def _refuse(options: argparse.Namespace, names: set[str], why: str) -> None:
    """Refuses the first of some options that was given."""
    for name in sorted(names):
        if getattr(options, name) is not None:
            option = {"fit": "from"}.get(name, name).replace("_", "-")
            raise InputError(f"--{option}: {why}")


def beyond(
    name: str,
    value: float,
    fitted: Sequence[float],
    options: argparse.Namespace,
    unit: str = "times",
) -> dict[str, float]:
    """How far an option's value is outside those that were fitted, by name; within them nothing.

    Raises:
        InputError: it is outside, and --extrapolate was not given.
    """
    low, high = min(fitted), max(fitted)
    if low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
        return {}
    side, end = ("above", high) if value > high else ("below", low)
    apart = max(value / end, end / value) if unit == "times" else abs(value - end)
    if not options.extrapolate:
        raise InputError(
            f"--{name} {number(value)} is {apart:.3g} {unit} {side} those fitted, {number(low)} to "
            f"{number(high)}; ask within them, or with --extrapolate"
        )
    return {name: apart}
