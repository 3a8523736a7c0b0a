"""bss points: steps and tokens to target losses, from loss curves."""

from bss.cells import Table
from bss.cli.options import Number, Trust
from bss.cli.output import Output, OutputFile, Show
from bss.cli.reading import RowOptions, TableOptions, Tables, TargetOptions
from bss.fitting import measure_points
from bss.tables import write_table

COLUMNS = ("run", "batch", "target_loss", "steps", "tokens_to_target", "reached", "eval_spacing",
           "peak_lr", "trials", "bracketed")  # fmt: skip


def points(
    runs: Tables,
    /,
    *,
    table: TableOptions = TableOptions(),
    targets: TargetOptions = TargetOptions(),
    peak_lr: Number | None = None,
    rows: RowOptions = RowOptions(),
    out: OutputFile | None = None,
    files: Trust = Trust(),
    show: Show = Show(),
) -> Output:
    """Measure steps and tokens to each target loss.

    Args:
        runs: runs directories, or CSV or Parquet: run, batch, loss (or eval_loss), step or tokens,
            seq_len or batch_tokens
        peak_lr: only runs with this peak LR; by default the best LR at each target
        out: save the points (.csv or .parquet)

    Examples:
        bss points RUNS.parquet --targets 1.9,1.8
        bss points RUNS.parquet --targets 1.9 --smooth 150K --json
    """
    given = {**table.given(), **targets.given(), **rows.rows()}
    measured, warnings = measure_points(runs, peak_lr=peak_lr, **given)
    if out:
        write_table(measured, out)
    records = measured.to_dict("records")
    title = "steps and tokens to each target loss"
    shown = Table.of_records(title, records, COLUMNS)
    return Output({"points": records, "warnings": warnings}, tables=[shown], warnings=warnings)
