"""bss fit: fit a law to measurements."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from bss import fitting, laws
from bss.cells import Table, fit_tables
from bss.cli.options import Number, Positive, Repeated, Trust
from bss.cli.output import Output, ShowPlot, figure
from bss.cli.reading import (
    DrawOptions,
    FitOptions,
    PointTables,
    TableOptions,
    Tables,
    TargetOptions,
)
from bss.cli.step_time import TimeOptions
from bss.errors import InputError
from bss.laws.step_time import CRITERIA, equal_time, sentence
from bss.units import parse_tokens, rounded_tokens


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
    chosen = LAWS.load(law) if law else None
    given = {**table.given(), **targets.given(), **how.given()}
    fit = fitting.fit_es(runs, law=chosen, peak_lr=peak_lr, **given)
    return _with_time(_output(fit), fit, step_time, time.price)


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
    of_fit: dict[str, Any] = {"overhead": overhead, "reference": reference_batch, "unit": unit}
    fit = fitting.fit_critical(points, **of_fit, **table.given(), **how.given())
    return _with_time(_output(fit), fit, step_time, time.price)


def loss(
    runs: Tables,
    /,
    *,
    form: Repeated = (),
    equal: str | None = None,
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
        equal: a column that groups of runs have equal, e.g. seconds of runs of 600 s each: find the
            best batch size at equal seconds

    Examples:
        bss fit loss LOSSES.csv
        bss fit loss CONTEST.csv --equal seconds
        bss fit loss LOSSES.csv --by optimizer,family
    """
    given = {**table.given(), **how.given()}
    fit = fitting.fit_loss(runs, forms=[*form] or None, equal=equal, **given)
    return _output(fit)


def lr(
    runs: Tables,
    /,
    *,
    table: TableOptions = TableOptions(),
    how: FitOptions = FitOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit the best peak LR of each size, and its law in model size, tokens and batch size.

    Args:
        runs: runs directories, or CSV or Parquet with a row per run: lr and loss; params, tokens,
            and batch or batch_tokens if they vary. One batch size is enough

    Examples:
        bss fit lr LOSSES.csv --columns lr=peak_lr
        bss fit lr LOSSES.csv --plot lr.png
    """
    return _output(fitting.fit_lr(runs, **table.given(), **how.given()))


def own(
    runs: Tables,
    /,
    *,
    law: str,
    table: TableOptions = TableOptions(),
    how: FitOptions = FitOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit a law of your own: a formula, its parameters and its unit of replication.

    Args:
        runs: CSV or Parquet with the columns of the law
        law: package.module:ATTRIBUTE, a bss.OwnLaw

    Examples:
        bss fit own LOSSES.csv --law mylaws:LAW
        bss fit own LOSSES.csv --law mylaws:LAW --fix L_0=1.69 --plot law.png
    """
    given = {name: x for name, x in table.given().items() if name != "seq_len"}
    return _output(fitting.fit_own(runs, law, **given, **how.given()))


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
    of_fit: dict[str, Any] = {"clock": clock, "since": since}
    of_fit["warmup"] = parse_tokens(warmup, field="--warmup")
    return _output(fitting.fit_curve(runs, **of_fit, **table.given(), **how.given()))


def branches(
    runs: Tables,
    /,
    *,
    tolerance: Positive = 0.02,
    table: TableOptions = TableOptions(),
    how: DrawOptions = DrawOptions(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Fit the penalty of larger batches along a run, from branches at its checkpoints.

    Args:
        runs: CSV or Parquet with a row per branch: fork (tokens at the checkpoint), batch, loss,
            tokens (at its end) and seq_len. The last rows of loss curves are taken
        tolerance: penalty that is allowed, in nats

    Examples:
        bss fit branches BRANCHES.csv
        bss fit branches BRANCHES.csv --tolerance 0.01 --plot branches.png
    """
    return _output(fitting.fit_branches(runs, tolerance=tolerance, **table.given(), **how.given()))


def _output(fit: Any) -> Output:
    """Return the answer, the summary, cross-validation and warnings of any fit, or of groups."""
    if isinstance(fit, laws.GroupFits):
        return _of_groups(fit)
    shown = fit_tables(fit)
    notes = [] if fit.cv_error is None else [f"CV error {fit.cv_error:.3g} {fit.RESIDUAL_UNIT}"]
    outliers = [f"outlier: {one}" for one in fit.outliers]
    warnings = [*fit.warnings, *outliers]
    draw = figure("fits.fit_figure", fit)
    answer = "\n".join(filter(None, (fit.answer, _plainly(fit))))
    return Output(fit.to_dict(), answer, shown, warnings, notes, figure=draw)


def _of_groups(fits: laws.GroupFits) -> Output:
    """Return the answer and the summary of each group, and what compares them."""
    tables = [Table.of_frame(*one) for one in fits.tables().items()]
    draw = figure("groups.groups_figure", fits)
    return Output(fits.to_dict(), fits.answer, tables, fits.warnings, figure=draw)


def _plainly(fit: Any) -> str:
    """Return what to use, and the tokens that half and twice of it cost; "" if that is unknown."""
    fits = fit.fits if isinstance(fit, laws.EsFit) else ()
    of_law = [at for at in fits if at.status == "converged" and at.best.method != "measured"]
    known = [at for at in of_law if at.best.value]
    best = known[-1].best.value if known else None
    if best is None:
        return ""
    loss = known[-1].target_loss
    half, at, twice = fit.tokens(best * np.array([0.5, 1, 2]), loss)
    if not (min(fit.batches) <= best / 2 and 2 * best <= max(fit.batches) and twice < np.inf):
        return ""
    rounded = f"{best:,.0f}" if best >= 10 else f"{best:.2g}"
    size = f"{rounded} sequences ({rounded_tokens(best * fit.seq_len)} tokens) per step"
    return (
        f"Use about {size} to loss {loss:g}: half of it needs {half / at - 1:.0%} more tokens, "
        f"twice {twice / at - 1:.0%}"
    )


def _with_time(output: Output, fit: Any, step_time: Any, price: float) -> Output:
    """Add the soonest and the cheapest batch sizes, and their figure, if there are step times."""
    if step_time is None:
        return output
    if isinstance(fit, laws.GroupFits):
        raise InputError("--step-time: not used with --by; fit one group with --keep")
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
