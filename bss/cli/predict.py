"""bss predict: what a fitted law says of a run that it has not seen, with an interval.

Each kind of fit answers in a file of its own, registered here.
"""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from bss.cli.output import Output, add_output_arguments, number
from bss.cli.reading import add_columns_argument
from bss.errors import InputError
from bss.files import read_json

ASKED = {
    "table": ("params", "tokens", "batch", "seq_len"),
    "curve": ("batch", "tokens", "lr", "warmup", "decay", "shape", "runs", "columns"),
    "es": ("loss", "batch"),
    "critical": ("params", "tokens"),
}
"""Per kind of fit, the options that say what is asked; others are refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss predict`."""
    add = parser.add_argument
    add("--from", dest="fit", type=Path, required=True, help="a fit, as `bss fit --json` prints it")
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
    add_output_arguments(parser, run, plot=True)


def run(options: argparse.Namespace) -> Output:
    """Answers by the kind of the fit."""
    entry = read_json(options.fit, "save a fit with `bss fit … --json`", "--from")
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind not in ASKED:
        known = ", ".join(ASKED)
        raise InputError(f"--from {options.fit}: kind {kind!r}; expected a fit of kind {known}")
    options_of = {name for names in ASKED.values() for name in names}
    for name in sorted(options_of - set(ASKED[kind])):
        if getattr(options, name) is not None:
            told = ", ".join(f"--{n.replace('_', '-')}" for n in ASKED[kind])
            raise InputError(
                f"--{name.replace('_', '-')}: a fit of kind {kind} is asked with {told}"
            )
    return importlib.import_module(f"bss.cli.predict_{kind}").predicted(entry, options)


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
