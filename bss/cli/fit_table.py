"""bss fit table: the three-term law, from the final losses of finished runs."""

import argparse
from pathlib import Path

from bss.cli.output import Output, Table, add_output_arguments, estimate, number
from bss.cli.reading import add_reading_arguments, reading
from bss.errors import InputError
from bss.laws import TableFit, fit_table
from bss.laws.final_loss.points import read_losses
from bss.laws.fitting.estimate import Options
from bss.units import format_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss fit table`."""
    told = "CSV or Parquet, a row per run: params, tokens, loss, batch and seq_len or "
    told += "batch_tokens; lr where it was varied"
    parser.add_argument("runs", type=Path, help=told)
    add_reading_arguments(parser)
    parser.add_argument("--resamples", type=int, default=300, help="bootstrap refits")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Fits the law of final losses."""
    if options.resamples < 10:
        raise InputError(f"--resamples {options.resamples}: expected 10 or more")
    fit = fit_table(read_losses(options.runs, reading(options)), options=Options(options.resamples))
    law = (
        "L = L_0 + A·N^-a + C·S^-c + M·B^-m, B in tokens; "
        f"rms error {fit.rmse:.2g}, largest {fit.max_error:.2g} nats over "
        f"{len(fit.points.loss)} points"
    )
    held = "; ".join(f"{x:.3g}: {error:.2g}" for x, error in fit.held_out.items())
    notes = [f"B_opt grows as D^{estimate(fit.B_opt_exponent)}", law]
    notes += [f"rms error at left-out {fit.held_out_by}: {held}"] if held else []
    notes += [f"warning: {text}" for text in fit.warnings]
    return Output(fit.to_dict(), [parameters_table(fit), optima_table(fit)], notes)


def parameters_table(fit: TableFit) -> Table:
    """The parameters with their intervals."""
    rows = [(name, estimate(value)) for name, value in fit.intervals.items()]
    return Table(f"three-term law, {fit.status}", ("parameter", "estimate"), rows)


def optima_table(fit: TableFit) -> Table:
    """The best batch at each size and budget, and what the measured batches give up."""
    columns = ("params", "tokens", "B_opt in tokens", "measured batches", "least given up")
    rows = [
        (
            number(at.params),
            format_tokens(round(at.tokens)),
            estimate(at.batch) + ("" if at.bracketed else " *"),
            f"{number(min(at.given_up))} – {number(max(at.given_up))}",
            f"{min(at.given_up.values()):.2g} nats",
        )
        for at in fit.optima
    ]
    return Table("best batch; * is not between measured ones", columns, rows)
