"""bss check: whether two loss curves that should be equal are."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

from bss.cli.output import Output, Show
from bss.importers.curves import read_loss_curve
from bss.points.agreement import compare_curves


def check(
    first: Path,
    second: Path,
    /,
    *,
    first_run: str | None = None,
    second_run: str | None = None,
    column: Literal["loss", "eval_loss"] | None = None,
    show: Show = Show(),
) -> Output:
    """Compare two loss curves that should be equal.

    They are equal within their noise, scaled, or different from a step on, e.g. with and without
    gradient accumulation. The exit status is 1 if they are not equal. No causes are guessed.

    Args:
        first: a log or a table, in any format that `bss import` reads
        second: the same of the other run
        first_run: its run, if the first file has several
        second_run: its run, if the second file has several
        column: which loss; by default the training loss, if both have it

    Examples:
        bss check ONE_GPU.jsonl EIGHT_GPUS.jsonl
        bss check RUNS.parquet RUNS.parquet --first-run b64 --second-run b64-accumulated
    """
    curves = [read_loss_curve(first, first_run), read_loss_curve(second, second_run)]
    shared = [name for name in ("loss", "eval_loss") if all(name in curve for curve in curves)]
    chosen = column or (shared or ["loss"])[0]
    found = compare_curves(*curves, column=chosen)
    payload = {"kind": "check", "column": chosen, "agreement": asdict(found)}
    return Output(payload, f"{chosen}: {found}", status=int(found.kind != "equal"))
