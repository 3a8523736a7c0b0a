"""bss points: steps and tokens to target losses, from anybody's loss curves."""

import argparse
import math
from pathlib import Path
from typing import Any

import pandas as pd

from bss.cli.output import Output, Table, add_output_arguments, measured_tokens, number
from bss.cli.reading import add_reading_arguments, read_run_table, reading
from bss.errors import InputError
from bss.points import rates
from bss.points.measuring import measure_points
from bss.tables import write_table
from bss.units import parse_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss points`."""
    add_curve_arguments(parser)
    parser.add_argument("--out", type=Path, help="save the points (.csv or .parquet)")
    add_output_arguments(parser, run)


def add_curve_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bss points` and the fits from curves share: the runs, the targets, the smoothing."""
    told = "a runs directory, or CSV or Parquet: run, batch, loss (or eval_loss), step or tokens, "
    told += "seq_len or batch_tokens"
    parser.add_argument("runs", type=Path, help=told)
    add_measuring_arguments(parser)
    told = "runs of one peak lr; by default, where a batch has several, the best at each target"
    parser.add_argument("--at-rate", metavar="RATE", type=float, help=told)


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """How a run table is read, and its points are measured."""
    add_reading_arguments(parser)
    parser.add_argument("--targets", help="losses in nats, as 1.8,1.7; by default five are chosen")
    told = "the training loss of all runs, where some have a held-out loss and others have not"
    parser.add_argument("--training-loss", action="store_true", help=told)
    parser.add_argument("--smooth", help="window over a noisy training loss, in tokens")
    parser.add_argument("--warmup", default="0", help="tokens of warm-up, for default targets")


def run(options: argparse.Namespace) -> Output:
    """Measures the points."""
    points, warnings = measured_points(options)
    if options.out:
        write_table(points, options.out)
    records = points.to_dict("records")
    tuned = "trials" in points
    columns = ("run", "batch", "target loss", "steps", "tokens", "known to")
    columns += ("lr", "of tried", "bracketed") if tuned else ()
    rows = [
        (
            row["run"],
            number(row["batch"]),
            number(row["target_loss"]),
            ("" if row["reached"] else "> ") + number(row["steps"]),
            ("" if row["reached"] else "> ") + measured_tokens(row["tokens_to_target"]),
            f"{row['resolution']:.1%}" if row["reached"] else "not reached",
            *(_rate_cells(row) if tuned else ()),
        )
        for row in records
    ]
    table = Table("steps and tokens to each target loss", columns, rows)
    notes = [f"warning: {text}" for text in warnings]
    return Output({"points": records, "warnings": warnings}, [table], notes)


def _rate_cells(row: dict[str, Any]) -> tuple[str, str, str]:
    """The rate that was chosen, of how many, and whether there were others on both sides."""
    known = math.isfinite(row["peak_lr"])
    chosen = rates.told(row["peak_lr"]) if known else "–"
    return chosen, f"{row['trials']}", "yes" if row["bracketed"] else "no"


def measured_points(options: argparse.Namespace) -> tuple[pd.DataFrame, list[str]]:
    """The points that the options ask for, and what their design means for a law.

    Where a batch has several peak rates the points are the envelope over them, unless --at-rate
    asks for one.
    """
    runs, told = read_curves(options.runs, options)
    points, measured = measure_points(
        runs,
        None if options.targets is None else parse_targets(options.targets),
        warmup=parse_tokens(options.warmup, field="--warmup"),
        smooth=smoothing(options),
        at_rate=options.at_rate,
    )
    return points, [*told, *measured]


def read_curves(
    path: Path, options: argparse.Namespace, *, need_finished: bool = True
) -> tuple[pd.DataFrame, list[str]]:
    """The run table, with the losses that the options ask for, and what is said of it."""
    runs, told = read_run_table(path, reading(options), need_finished=need_finished)
    return chosen_losses(runs, options), told


def chosen_losses(runs: pd.DataFrame, options: argparse.Namespace) -> pd.DataFrame:
    """A run table without its held-out losses, where the training loss is asked for."""
    if not options.training_loss or "eval_loss" not in runs:
        return runs
    if runs["loss"].equals(runs["eval_loss"]):
        raise InputError("--training-loss: the runs have held-out losses alone; leave it out")
    return runs.drop(columns="eval_loss")


def smoothing(options: argparse.Namespace) -> int | None:
    """The window over a noisy loss, in tokens."""
    return parse_tokens(options.smooth, field="--smooth") if options.smooth else None


def parse_targets(text: str) -> list[float]:
    """ "1.8,1.7" as [1.8, 1.7]."""
    try:
        targets = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--targets {text!r}: expected losses in nats, as 1.8,1.7") from None
    if not all(math.isfinite(target) and target > 0 for target in targets):
        raise InputError(f"--targets {text!r}: expected positive losses in nats, as 1.8,1.7")
    return targets
