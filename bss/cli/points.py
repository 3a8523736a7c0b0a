"""bss points: steps and tokens to target losses, from anybody's loss curves."""

import argparse
import math
from collections.abc import Hashable
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
    text = "a runs directory, or CSV or Parquet: run, batch, loss (or eval_loss), step or tokens, "
    text += "seq_len or batch_tokens"
    parser.add_argument("runs", type=Path, help=text)
    add_measuring_arguments(parser)
    text = "runs of one peak lr; by default, where a batch has several, the best at each target"
    parser.add_argument("--at-rate", metavar="RATE", type=float, help=text)


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """How a run table is read, and its points are measured."""
    add_reading_arguments(parser)
    parser.add_argument("--targets", help="losses in nats, as 1.8,1.7; by default five are chosen")
    text = "the training loss of all runs, where some have a held-out loss and others have not"
    parser.add_argument("--training-loss", action="store_true", help=text)
    parser.add_argument("--smooth", help="window over a noisy training loss, in tokens")
    parser.add_argument("--warmup", default="0", help="tokens of warm-up, for default targets")


def run(options: argparse.Namespace) -> Output:
    """Measures the points.

    Examples:
        bss points RUNS.parquet --targets 1.9,1.8
        bss points RUNS.parquet --targets 1.9 --smooth 150K --json
    """
    points, warnings = measured_points(options)
    if options.out:
        write_table(points, options.out)
    records = points.to_dict("records")
    cells = {
        "run": lambda row: row["run"],
        "batch": lambda row: number(row["batch"]),
        "target loss": lambda row: number(row["target_loss"]),
        "steps": lambda row: _bound(row) + number(row["steps"]),
        "tokens": lambda row: measured_tokens(row["tokens_to_target"], _bound(row)),
        "known to": lambda row: f"{row['resolution']:.1%}" if row["reached"] else "not reached",
    }
    if "trials" in points:  # of several rates: the best one, and whether others are on both sides
        cells |= {
            "lr": lambda row: (
                rates.rate_text(row["peak_lr"]) if math.isfinite(row["peak_lr"]) else "–"
            ),
            "of tried": lambda row: f"{row['trials']}",
            "bracketed": lambda row: "yes" if row["bracketed"] else "no",
        }
    table = Table.of("steps and tokens to each target loss", records, cells)
    notes = [f"warning: {text}" for text in warnings]
    return Output({"points": records, "warnings": warnings}, [table], notes)


def _bound(row: dict[Hashable, Any]) -> str:
    return "" if row["reached"] else "> "


def measured_points(options: argparse.Namespace) -> tuple[pd.DataFrame, list[str]]:
    """The points that the options ask for, and what their design means for a law.

    Where a batch has several peak rates the points are the envelope over them, unless --at-rate
    asks for one.
    """
    runs, remarks = read_curves(options.runs, options)
    points, measured = measure_points(runs, **measuring(options), at_rate=options.at_rate)
    return points, [*remarks, *measured]


def read_curves(
    path: Path, options: argparse.Namespace, *, need_finished: bool = True
) -> tuple[pd.DataFrame, list[str]]:
    """The run table, with the losses that the options ask for, and what is said of it."""
    runs, remarks = read_run_table(path, reading(options), need_finished=need_finished)
    if options.training_loss and "eval_loss" in runs:
        if runs["loss"].equals(runs["eval_loss"]):
            raise InputError("--training-loss: the runs have held-out losses alone; leave it out")
        runs = runs.drop(columns="eval_loss")
    return runs, remarks


def measuring(options: argparse.Namespace) -> dict[str, Any]:
    """The targets (None for chosen ones), warm-up and window by which points are measured."""
    return {
        "targets": None if options.targets is None else _targets(options.targets),
        "warmup": parse_tokens(options.warmup, field="--warmup"),
        "smooth": parse_tokens(options.smooth, field="--smooth") if options.smooth else None,
    }


def _targets(text: str) -> list[float]:
    try:
        targets = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--targets {text!r}: expected losses in nats, as 1.8,1.7") from None
    if not all(math.isfinite(target) and target > 0 for target in targets):
        raise InputError(f"--targets {text!r}: expected positive losses in nats, as 1.8,1.7")
    return targets
