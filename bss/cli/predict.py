"""bss predict: what a fitted law says of a run that it has not seen, with an interval."""

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from bss.cli.kinds import KINDS, read_fit
from bss.cli.output import Output, add_output_arguments, number, option
from bss.cli.reading import add_columns_argument
from bss.errors import InputError
from bss.laws.base import Estimate


class PredictedRun(NamedTuple):
    """The loss at the end of a run, and what was measured there, if anything."""

    run: str
    tokens: int
    loss: Estimate
    measured: float | None
    error: float | None
    extrapolates: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss predict`."""
    add = parser.add_argument
    add("--params", help="of a table or critical fit: non-embedding parameters, as 350M")
    add_schedule_arguments(parser)
    add("--seq-len", type=int, help="of a table fit: tokens per sequence")
    add("--loss", type=float, help="of an es fit: the target loss, in nats")
    add_output_arguments(parser, run, plot=True)


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    """A fit, and what one of loss curves is asked: a schedule, or the runs of a table."""
    add = parser.add_argument
    text = "a fit, as `bss fit --json` prints it"
    add("--from", dest="fit", type=Path, required=True, help=text)
    add("--tokens", help="budget, as 30B")
    add("--batch", help='sequences, as 256; of a curve fit also a schedule, as "0:8 2M:16"')
    add("--lr", type=float, help="of a curve or table fit: peak learning rate")
    add("--warmup", help="of a curve fit: tokens, or a percentage of the budget")
    add("--decay", help="of a curve fit: tokens, or a percentage of the budget")
    add("--shape", help="of a curve fit: how the rate decays, as linear or cosine")
    add("--runs", type=Path, help="of a curve or table fit: a table of runs; loss is optional")
    add_columns_argument(parser)
    add("--extrapolate", action="store_true", help="answer beyond what the fit was tested for")


def run(options: argparse.Namespace) -> Output:
    """Answers by the kind of the fit.

    Examples:
        bss predict --from FIT.json --loss 1.9
        bss predict --from CURVE.json --batch 8 --tokens 1M --lr 2e-3
    """
    fit = read_fit(options.fit, "predict")
    own = KINDS[fit.KIND].options
    for name in sorted({name for kind in KINDS.values() for name in kind.options} - {*own}):
        if getattr(options, name) is not None:
            others = ", ".join(map(option, own))
            raise InputError(f"{option(name)}: a fit of kind {fit.KIND} is asked with {others}")
    return import_module(KINDS[fit.KIND].commands).predicted(fit, options)


def tested(
    question: Mapping[str, float], fitted: Mapping[str, Sequence[float]], *, extrapolate: bool
) -> tuple[dict[str, Any], list[str]]:
    """What was fitted, and how far beyond it each option's value is: for JSON, and as warnings.

    A loss is so many nats beyond, all else so many times.

    Raises:
        InputError: a value is outside, and --extrapolate was not given.
    """
    outside, warnings = {}, []
    for name, value in question.items():
        low, high = min(fitted[name]), max(fitted[name])
        if low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            continue
        side, end = ("above", high) if value > high else ("below", low)
        apart, unit = max(value / end, end / value), "times"
        if name == "loss":
            apart, unit = abs(value - end), "nats"
        if not extrapolate:
            raise InputError(
                f"--{name} {number(value)} is {apart:.3g} {unit} {side} those fitted, "
                f"{number(low)} to {number(high)}; ask within them, or with --extrapolate"
            )
        outside[name] = apart
        warnings.append(f"warning: {name} {apart:.3g} {unit} outside those fitted")
    ranges = {name: {"low": min(values), "high": max(values)} for name, values in fitted.items()}
    return {**ranges, "beyond": outside}, warnings
