"""bss fit: fit a law to measurements."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from bss import laws
from bss.cells import Table, fit_tables
from bss.cli.options import Number, Repeated, Trust
from bss.cli.output import Output, ShowPlot, figure
from bss.cli.reading import (
    FitOptions,
    PointTables,
    TableOptions,
    Tables,
    TargetOptions,
    measured_points,
    read_loss_tables,
    read_point_tables,
    read_run_table,
)
from bss.cli.step_time import TimeOptions
from bss.laws.base import DRAWS
from bss.laws.step_time import CRITERIA, equal_time, sentence
from bss.points.units import in_nats
from bss.tables import Reading
from bss.units import parse_tokens


def es(
    runs: Tables,
    /,
    *,
    law: str | None = None,
    peak_lr: Number | None = None,
    table: TableOptions = TableOptions(),
    targets: TargetOptions = TargetOptions(),
    how: FitOptions = FitOptions(),
    time: TimeOptions = TimeOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit a law E(S), by default the one that predicts left-out batches best.

    Args:
        runs: runs directories, or CSV or Parquet: run, batch, loss (or eval_loss), step or tokens,
            seq_len or batch_tokens
        law: piecewise, hyperbola, a surface, or package.module:ATTRIBUTE; chosen by default
        peak_lr: only runs with this peak LR; by default the best LR at each target

    Examples:
        bss fit es RUNS.parquet --targets 1.9,1.8
        bss fit es RUNS.parquet --targets 1.9 --law hyperbola --resamples 50 --plot es.png
        bss fit es RUNS.parquet --targets 1.9 --step-time "50ms + 2ms*B"
    """
    from bss.laws.es import LAWS

    step_time = time.read(runs, table.reading())
    points, warnings = measured_points(runs, table, targets, peak_lr, how)
    chosen = LAWS.load(law) if law else None
    fit = _fitted(laws.fit_es, points, how, 500, law=chosen, draws=DRAWS)
    draw = figure("laws.tokens_to_target", points, {fit.law_name: fit})
    return _with_time(_output(fit, warnings, draw), fit, step_time, time.price)


def critical(
    points: PointTables,
    /,
    *,
    overhead: Number = 0.2,
    reference_batch: str = "256",
    unit: Literal["sequences", "tokens"] = "sequences",
    table: TableOptions = TableOptions(),
    how: FitOptions = FitOptions(),
    time: TimeOptions = TimeOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit critical batch sizes and their law in model size and tokens.

    Args:
        points: CSV or Parquet, or directories of them: model, params or params_m, tokens,
            target_loss, batch, steps
        overhead: tokens above linear scaling, 0.2 for 20%
        reference_batch: a batch that scales linearly: 256, smallest (of each curve), or 10% (of
            each b/a)
        unit: of batches

    Examples:
        bss fit critical STEPS.csv
        bss fit critical STEPS.csv --overhead 0.1 --level 0.8 --resamples 200
    """
    step_time = time.read()
    found, warnings = _critical_points(points, table.reading())
    measured = how.selected(found)
    given: dict[str, Any] = {"overhead": overhead, "reference": reference_batch, "unit": unit}
    fit = _fitted(laws.fit_critical, measured, how, 2000, **given)
    output = _output(fit, warnings, figure("critical.critical_figure", fit))
    return _with_time(output, fit, step_time, time.price)


def loss(
    runs: Tables,
    /,
    *,
    form: Repeated = (),
    table: TableOptions = TableOptions(),
    how: FitOptions = FitOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit the law of final losses over model size, tokens, batch and learning rate.

    Args:
        runs: runs directories, or CSV or Parquet with a row per run: params, tokens, loss, batch
            and seq_len or batch_tokens; lr if it was varied
        form: average only these forms; may be repeated; or package.module:ATTRIBUTE

    Examples:
        bss fit loss LOSSES.csv
        bss fit loss LOSSES.csv --resamples 20 --json
    """
    from bss.laws.final_loss.table import read_losses

    losses, warnings = read_loss_tables(runs, table.reading(), read_losses)
    fit = _fitted(laws.fit_loss, how.selected(losses), how, 300, forms=[*form] or None)
    return _output(fit, warnings, figure("final_loss.loss_figure", fit))


def curve(
    runs: Tables,
    /,
    *,
    clock: str | None = None,
    warmup: str = "0",
    since: str = "0",
    table: TableOptions = TableOptions(),
    how: FitOptions = FitOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit the functional scaling law to loss curves under any schedule.

    Args:
        runs: runs directories, or CSV or Parquet: run, batch, lr, loss or eval_loss, step or
            tokens, seq_len or batch_tokens. Some runs must change batch or LR. Rows without a loss
            give the schedule only
        clock: sgd or adam; by default the better one for left-out runs
        warmup: tokens of warm-up, whose losses are left out
        since: leave earlier losses out: tokens, or a percentage of the longest run

    Examples:
        bss fit curve RUNS.parquet
        bss fit curve RUNS.parquet --since 50% --resamples 20 --json
    """
    every, warnings = read_run_table(runs, table.reading(), need_loss=False)
    found, units = in_nats(every)
    warnings += units
    start = parse_tokens(warmup, field="--warmup")
    longest = max(int(n) for n in found["tokens"])
    first = parse_tokens(since, field="--since", total=longest)
    kept = how.selected(found)
    fit = _fitted(laws.fit_curve, kept, how, 60, clock=clock, warmup=start, since=first)
    draw = figure("curves.fitted_curves", fit, kept)
    return _output(fit, warnings, draw)


def _fitted(
    fit: Callable[..., Any], table: pd.DataFrame, how: FitOptions, resamples: int, **given: Any
) -> Any:
    """Return the fit with the options that every kind of fit has."""
    given |= {"constraints": how.constraints}
    return fit(table, options=how.options(resamples, given.pop("draws", 0)), **given)


def _output(fit: Any, warnings: Sequence[str], draw: Callable[[], Any]) -> Output:
    """Return the answer, the summary, cross-validation and warnings of any fit."""
    fit = replace(fit, warnings=(*fit.warnings, *warnings))
    shown = fit_tables(fit)
    notes = [] if fit.cv_error is None else [f"CV error {fit.cv_error:.3g} {fit.RESIDUAL_UNIT}"]
    outliers = [f"outlier: {one}" for one in fit.outliers]
    return Output(fit.to_dict(), fit.answer, shown, [*fit.warnings, *outliers], notes, figure=draw)


def _with_time(output: Output, fit: Any, step_time: Any, price: float) -> Output:
    """Add the soonest and the cheapest batch sizes, and their figure, if there are step times."""
    if step_time is None:
        return output
    rows, warnings = equal_time(fit, step_time, price)
    last = rows.tail(len(CRITERIA))
    line = "".join(f"\n{name}: {sentence(one)}" for name, one in last.groupby("at"))
    drawn = isinstance(fit, laws.EsFit)
    return replace(
        output,
        json={**output.json, "equal_time": rows.to_dict("records")},
        answer=output.answer + line,
        tables=[*output.tables, Table.of_frame("Time and cost", rows)],
        warnings=[*output.warnings, *warnings],
        figure=figure("step_time.time_figure", fit, step_time, price) if drawn else output.figure,
    )


def _critical_points(paths: Sequence[Path], how: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read tables of points as one; return it with warnings.

    Points of runs get the largest budget of their model and target, as the budgets of runs differ
    by the remainder of a step.
    """
    measured, warnings = read_point_tables(paths, how)
    if "run" not in measured:
        return measured, warnings
    cell = ["model", "params", "target_loss", "kind", "seq_len"]
    largest = measured.groupby(cell, dropna=False)["budget_tokens"].transform("max")
    return measured.assign(budget_tokens=largest), warnings
