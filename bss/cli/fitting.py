"""The options that every fit has: how intervals are made, what is held, left out and opened up."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bss.cells import Table, number
from bss.cli.output import Output, add_output_arguments
from bss.errors import InputError
from bss.files import write_text
from bss.laws.base import Fit, Options
from bss.laws.constraints import FREE, Constraints

Some = TypeVar("Some", bound=Fit)
MOST = 40  # rows of what was left out in turn


def add_fit_arguments(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], Output],
    *,
    resamples: int,
    hold_out: str,
) -> None:
    """What is run, how intervals are made, what is held, and the rows that a fit leaves out."""
    add = parser.add_argument
    add("--resamples", type=int, default=resamples, help="bootstrap refits")
    add("--level", type=float, default=0.90, help="coverage of the intervals, by default 0.90")
    add("--seed", type=int, default=0, help="of the bootstrap")
    what = "leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named"
    add("--drop", action="append", default=[], metavar="WHAT", help=what)
    what = f"also leave out and predict: {hold_out}"
    add("--hold-out", action="append", default=[], metavar="WHAT", help=what)
    what = "hold a parameter, as L_0=1.69; told beside the free fit"
    add("--fix", action="append", default=[], metavar="NAME=VALUE", help=what)
    what = "keep a parameter within bounds, as L_0=1.5:1.8; told beside the free fit"
    add("--bound", action="append", default=[], metavar="NAME=LOW:HIGH", help=what)
    what = "save what the fit misses row by row (.csv), or its pictures (.png, .svg, .pdf)"
    add("--residuals", metavar="FILE", help=what)
    add_output_arguments(parser, run, plot=True)


def fit_options(options: argparse.Namespace, draws: int = 0) -> Options:
    """What `add_fit_arguments` was given; InputError of too few refits for an interval."""
    check_resamples(options.resamples)
    return Options(options.resamples, options.level, options.seed, draws)


def check_resamples(resamples: int) -> None:
    """InputError where --resamples are too few for an interval."""
    if resamples < 10:
        raise InputError(f"--resamples {resamples}: expected 10 or more")


def with_free(
    options: argparse.Namespace, make: Callable[[Constraints], Some]
) -> tuple[Some, Some | None]:
    """The fit that is asked for, and the free one where parameters are held in it."""
    for flag, texts, form in (("fix", options.fix, ""), ("bound", options.bound, ":")):
        for text in texts:
            if (":" in text) != bool(form) or "," in text:
                form = "NAME=LOW:HIGH" if form else "NAME=VALUE"
                raise InputError(f"--{flag} {text!r}: expected one {form}")
            try:
                Constraints.parse(text)
            except InputError as error:
                raise InputError(f"--{flag} {error}") from None
    held = Constraints.parse(", ".join([*options.fix, *options.bound]))
    fit = make(held)
    return fit, make(FREE) if held else None


def opened_tables(
    fit: Some, free: Some | None, facts: Callable[[Some], dict[str, str]]
) -> list[Table]:
    """What a fit's constraints change, by facts of it as text; and what it left out in turn."""
    tables = []
    if free is not None:
        held, before = facts(fit), facts(free)
        rows = [(name, held.get(name, "–"), before.get(name, "–")) for name in {**held, **before}]
        columns = ("", f"with {fit.constraints}", "free")
        tables.append(Table("what the constraint changes", columns, rows))
    for one in fit.held_out:
        rows = [(name, one.counts[name], number(x, 3)) for name, x in one.errors.items()]
        title = f"left out in turn: {one.by}; rms error of {one.unit} {one.rmse:.3g}"
        extra = max(len(rows) - MOST, 0)
        title += f" ({extra} more in --json)" if extra else ""
        tables.append(Table(title, (one.by, "rows", "rms error"), rows[:MOST]))
    return tables


def save_residuals(options: argparse.Namespace, fit: Fit) -> None:
    """Writes what --residuals asks for."""
    if not options.residuals:
        return
    path = Path(options.residuals)
    if path.suffix not in (".csv", ".png", ".svg", ".pdf"):
        raise InputError(f"--residuals {path}: expected a file name in .csv, .png, .svg or .pdf")
    if path.suffix == ".csv":
        write_text(path, fit.residuals().to_csv(index=False))
        return
    from bss.plots.residuals import residuals_figure

    residuals_figure(fit).savefig(path)
