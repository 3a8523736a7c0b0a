"""bss points: steps and tokens to target losses, from anybody's loss curves."""

import argparse
import math
from pathlib import Path

import pandas as pd

from bss.cli.output import Output, Table, add_output_arguments, measured_tokens, number
from bss.cli.reading import add_reading_arguments, reading
from bss.errors import InputError
from bss.points import curve as measure
from bss.points.rates import rate_warnings
from bss.tables import read_runs, write_table
from bss.units import parse_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss points`."""
    add_curve_arguments(parser)
    parser.add_argument("--out", type=Path, help="save the points (.csv or .parquet)")
    add_output_arguments(parser, run)


def add_curve_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bss points` and the fits from curves share: the runs, the targets, the smoothing."""
    told = "CSV or Parquet: run, batch, loss (or eval_loss), step or tokens, "
    told += "seq_len or batch_tokens"
    parser.add_argument("runs", type=Path, help=told)
    add_measuring_arguments(parser)


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
    columns = ("run", "batch", "target loss", "steps", "tokens", "known to")
    rows = [
        (
            row["run"],
            number(row["batch"]),
            number(row["target_loss"]),
            ("" if row["reached"] else "> ") + number(row["steps"]),
            ("" if row["reached"] else "> ") + measured_tokens(row["tokens_to_target"]),
            f"{row['resolution']:.1%}" if row["reached"] else "not reached",
        )
        for row in records
    ]
    table = Table("steps and tokens to each target loss", columns, rows)
    notes = [f"warning: {text}" for text in warnings]
    return Output({"points": records, "warnings": warnings}, [table], notes)


def measured_points(options: argparse.Namespace) -> tuple[pd.DataFrame, list[str]]:
    """The points that the options ask for, and what their learning rates mean for a law."""
    runs, told = measure.evaluated(read_curves(options.runs, options))
    smooth = smoothing(options)
    if options.targets is None:
        warmup = parse_tokens(options.warmup, field="--warmup")
        targets = measure.default_targets(runs, warmup_tokens=warmup, smooth=smooth)
    else:
        targets = parse_targets(options.targets)
    points = measure.points(runs, targets, smooth=smooth)
    return points, [*told, *rate_warnings(runs, points)]


def read_curves(path: Path, options: argparse.Namespace) -> pd.DataFrame:
    """The run table, with the losses that the options ask for."""
    return chosen_losses(read_runs(path, reading(options)), options)


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
