"""The options that every fit has, and what they say of its intervals."""

import argparse
from collections.abc import Callable

from bss.cli.output import Output, add_output_arguments
from bss.errors import InputError
from bss.laws.fitting.estimate import Options


def add_fit_arguments(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], Output],
    *,
    resamples: int,
) -> None:
    """What is run, how the intervals of a fit are made, and the rows that it leaves out."""
    add = parser.add_argument
    add("--resamples", type=int, default=resamples, help="bootstrap refits")
    add("--level", type=float, default=0.90, help="coverage of the intervals, by default 0.90")
    add("--seed", type=int, default=0, help="of the bootstrap")
    what = "leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named"
    add("--drop", action="append", default=[], metavar="WHAT", help=what)
    add_output_arguments(parser, run, plot=True)


def fit_options(options: argparse.Namespace, draws: int = 0) -> Options:
    """What `add_fit_arguments` was given; InputError of too few refits for an interval."""
    check_resamples(options.resamples)
    return Options(options.resamples, options.level, options.seed, draws)


def check_resamples(resamples: int) -> None:
    """InputError where --resamples are too few for an interval."""
    if resamples < 10:
        raise InputError(f"--resamples {resamples}: expected 10 or more")
