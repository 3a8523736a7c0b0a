"""bss points: steps and tokens to target losses, from loss curves."""

import math
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bss.cells import Table, measured_tokens, number
from bss.cli.options import TableOptions, TargetOptions, measured_points
from bss.cli.output import Output, Show


def points(
    runs: Path,
    /,
    *,
    table: TableOptions = TableOptions(),
    targets: TargetOptions = TargetOptions(),
    at_rate: float | None = None,
    out: Annotated[Path | None, Parameter(name="--out")] = None,
    show: Show = Show(),
) -> Output:
    """Measure steps and tokens to each target loss.

    Args:
        runs: a runs directory, or CSV or Parquet: run, batch, loss (or eval_loss), step or tokens,
            seq_len or batch_tokens
        at_rate: only runs of this peak learning rate; by default the best rate at each target
        out: save the points (.csv or .parquet)

    Examples:
        bss points RUNS.parquet --targets 1.9,1.8
        bss points RUNS.parquet --targets 1.9 --smooth 150K --json
    """
    from bss.tables import write_table

    measured, warnings = measured_points(runs, table, targets, at_rate)
    if out:
        write_table(measured, out)
    records = measured.to_dict("records")
    cells = {
        "run": lambda row: row["run"],
        "batch": lambda row: number(row["batch"]),
        "target loss": lambda row: number(row["target_loss"]),
        "steps": lambda row: _bound(row) + number(row["steps"]),
        "tokens": lambda row: measured_tokens(row["tokens_to_target"], _bound(row)),
        "eval spacing": lambda row: f"{row['resolution']:.1%}" if row["reached"] else "not reached",
    }
    if "trials" in measured:  # the best of several rates, and whether others are on both sides
        cells |= {
            "lr": lambda row: f"{row['peak_lr']:.3g}" if math.isfinite(row["peak_lr"]) else "–",
            "rates tried": lambda row: f"{row['trials']}",
            "bracketed": lambda row: "yes" if row["bracketed"] else "no",
        }
    shown = Table.of("steps and tokens to each target loss", records, cells)
    return Output({"points": records, "warnings": warnings}, tables=[shown], warnings=warnings)


def _bound(row: dict[Hashable, Any]) -> str:
    return "" if row["reached"] else "> "
