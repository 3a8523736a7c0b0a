"""Loss curves, any LR and batch schedule: bss fit curve; bss predict, of a schedule or of runs."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bss import laws
from bss.advice.of_runs import asked_peak
from bss.cells import estimate
from bss.cli.fitting import (
    add_fit_arguments,
    fit_options,
    opened_tables,
    save_residuals,
    with_free,
)
from bss.cli.output import Output, Table, drawing, number, progress
from bss.cli.plan import check_peak, parse_budget
from bss.cli.predict import PredictedRun
from bss.cli.reading import add_reading_arguments, read_run_table, reading
from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.base import Estimate
from bss.laws.functional.curves import Curves, curves_of, stack
from bss.laws.functional.forecast import check_tested, forecast, last_losses
from bss.laws.functional.paths import plan_path
from bss.laws.functional.problem import CLOCKS
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.tables import Reading
from bss.tables.reading import without
from bss.units import format_tokens, parse_tokens
from bss.values import to_dict

LAW = (
    "L = L_0 + c_1 (1 + T/T_0)^-s + ∫ [A_0 + A_1 (1 + u/T_0)^-s] ν (1 + c_K (T − u))^-q du, "
    "ν = lr^p/B^m, T = Σ lr / sqrt(1 + B_phi/B)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bss fit curve`."""
    add = parser.add_argument
    text = (
        "a runs directory, or CSV or Parquet: run, batch, lr, loss (or eval_loss; missing where a "
        "row has the schedule alone), step or tokens, seq_len or batch_tokens; constant runs, and "
        "some that change batch or rate"
    )
    add("runs", type=Path, help=text)
    add_reading_arguments(parser)
    text = f"{' or '.join(CLOCKS)}; by default the one with the lower error at left-out runs"
    add("--clock", help=text)
    add("--warmup", default="0", help="tokens of warm-up, whose losses are left out")
    text = "leave out losses before: tokens, or a percentage of the longest run; default 0"
    add("--since", default="0", help=text)
    add_fit_arguments(parser, run, resamples=100, hold_out="run: the end of each run")


def run(options: argparse.Namespace) -> Output:
    """Fits the law.

    Examples:
        bss fit curve RUNS.parquet
        bss fit curve RUNS.parquet --since 50% --resamples 20 --json
    """
    how = fit_options(options)
    runs, remarks = read_run_table(options.runs, reading(options), need_loss=False)
    warmup = parse_tokens(options.warmup, field="--warmup")
    longest = max(int(n) for n in runs["tokens"])
    since = parse_tokens(options.since, field="--since", total=longest)
    runs = without(runs, options.drop)
    with progress() as report:
        given = {"clock": options.clock, "warmup": warmup, "since": since}
        given |= {"hold_out": options.hold_out, "options": how, "report": report}
        fit, free = with_free(options, lambda x: laws.fit_curve(runs, constraints=x, **given))
    save_residuals(options, fit)
    known = fit.task_hardness.value is not None
    notes = [
        LAW,
        f"rms error of log loss {fit.rmse:.2g} over {fit.losses} losses of {fit.runs} runs",
        *([f"{fit.losses} of {fit.measured} losses read"] if fit.losses < fit.measured else []),
        *(f"outlier: {one}" for one in fit.outliers),
        *([f"{_task(fit.task_hardness)}: s − (q − 1) = {estimate(fit.task_hardness)}"] * known),
        *(f"warning: {text}" for text in (*fit.warnings, *remarks)),
    ]
    figure = drawing("curves.fitted_curves", fit, runs)
    payload = fit.to_dict() | ({"free": free.to_dict()} if free else {})
    tables = [parameters_table(fit), *([clocks_table(fit)] if fit.cv_errors else [])]
    return Output(payload, [*tables, *opened_tables(fit, free, _facts)], notes, figure=figure)


def clocks_table(fit: CurveFit) -> Table:
    """The cross-validated error of each clock."""
    rows = [(name, number(error, 2)) for name, error in fit.cv_errors.items()]
    title = f"each clock, losses since {fit.since:,} tokens"
    return Table(title, ("clock", "rms error of log loss at left-out ends"), rows)


def _facts(fit: CurveFit) -> dict[str, str]:
    """What a constraint may change."""
    facts = {"rms error at left-out ends": number(fit.cv_error, 3), "clock": fit.clock}
    return facts | {name: estimate(one) for name, one in fit.parameters.items()}


def _task(hardness: Estimate) -> str:
    """Easy or hard, if the interval has one sign."""
    low, high = hardness.low, hardness.high
    if low is not None and low > 0:
        return "an easy task"
    return "a hard task" if high is not None and high < 0 else "easy or hard is undecided"


def parameters_table(fit: CurveFit) -> Table:
    """The parameters with their intervals; a fixed one is the value that predictions use."""
    law = fit.law._asdict()
    rows = [
        (name, estimate(value), number(float(law[name])), value.note.partition(":")[0])
        for name, value in fit.parameters.items()
    ]
    status = fit.status if fit.identified or fit.status != "converged" else "noise unidentified"
    error = fit.cv_error
    errors = "" if error is None else f", off by {error:.2g} in log loss at left-out ends"
    title = f"functional scaling law, {fit.clock} clock, {status}{errors}"
    return Table(title, ("parameter", "estimate", "in predictions", ""), rows)


EARLY = 0.02  # of the budget: a figure has no losses before it
OF_SCHEDULE = ("batch", "tokens", "lr", "decay", "shape")


def predicted(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of a schedule, or of each run of a table, with its interval."""
    return (of_runs if options.runs else of_schedule)(fit, options)


def of_schedule(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of the schedule in the options."""
    for name in ("batch", "tokens"):
        if getattr(options, name) is None:
            raise InputError(f"--{name}: missing; give a schedule (--batch, --tokens) or --runs")
    tokens = parse_budget(options.tokens)
    schedule = BatchSchedule.parse(options.batch, total=tokens)
    rate = _rate(fit, options, tokens)
    path = plan_path(schedule, tokens, fit.seq_len, rate)
    curves = stack([path], fit.seq_len)
    beyond = check_tested(fit, curves, extrapolate=options.extrapolate)[0]
    loss, steps = last_losses(fit, curves)[0], round(float(path.steps.sum()))
    payload = {
        "kind": "prediction",
        "of": "curve",
        "loss": to_dict(loss),
        "steps": steps,
        "tokens": int(path.tokens[0]),
        "batch": str(schedule),
        "tested": _tested(fit),
        "extrapolates": list(beyond),
    }
    row = (str(schedule), format_tokens(tokens), f"{steps:,}", estimate(loss))
    columns = ("batch", "tokens", "steps", f"loss ({fit.level:.0%} of runs)")
    table = Table("predicted loss, nats per token", columns, [row])
    notes = [*_notes(fit), *(f"beyond what was tested: {what}" for what in beyond)]
    at = np.geomspace(EARLY * tokens, path.tokens[0], 100)
    along = stack([plan_path(schedule, tokens, fit.seq_len, rate, at)], fit.seq_len)
    return Output(payload, [table], notes, figure=lambda: _figure(fit, along))


def of_runs(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of each run of the table in the options."""
    for name in OF_SCHEDULE:
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: the runs of --runs have their own; leave one of them out")
    reading = Reading.parse(options.columns, fit.seq_len)
    table, remarks = read_run_table(options.runs, reading, need_loss=False)
    warmup = parse_tokens(options.warmup or "0", field="--warmup")
    curves = curves_of(table, warmup=warmup, every_row=True)
    beyond = check_tested(fit, curves, extrapolate=options.extrapolate)
    runs, at = [], (np.arange(len(curves.runs)), curves.last)
    losses = zip(last_losses(fit, curves), curves.loss[at], curves.tokens[at], strict=True)
    for i, (loss, last, tokens) in enumerate(losses):
        measured = float(last) if np.isfinite(last) else None
        error = None if measured is None else (loss.value or 0) - measured
        runs.append(PredictedRun(curves.runs[i], int(tokens), loss, measured, error, beyond[i]))
    errors = [run.error for run in runs if run.error is not None]
    rmse = float(np.sqrt(np.mean(np.square(errors)))) if errors else None
    payload = {"kind": "prediction", "of": "curve", "runs": to_dict(runs), "rmse": rmse}
    cells = {
        "run": lambda one: one.run,
        "tokens": lambda one: format_tokens(one.tokens),
        f"predicted ({fit.level:.0%})": lambda one: estimate(one.loss),
        "measured": lambda one: number(one.measured),
        "error": lambda one: "–" if one.error is None else f"{one.error:+.4f}",
    }
    notes = [*_notes(fit), *(f"warning: {text}" for text in remarks)]
    notes += [f"rms error {rmse:.2g} nats over {len(errors)} runs"] if errors else []
    notes += [f"{one.run}, beyond what was tested: {x}" for one in runs for x in one.extrapolates]
    title = "predicted losses at the last loss of each run, nats"
    return Output(
        payload | {"tested": _tested(fit)},
        [Table.of(title, runs, cells)],
        notes,
        figure=lambda: _figure(fit, curves),
    )


def _rate(fit: CurveFit, options: argparse.Namespace, tokens: int) -> rates.Rate:
    peak = asked_peak(fit, options.lr)
    if options.shape and not options.decay:
        raise InputError(f"--shape {options.shape}: it is the shape of a decay; give --decay too")
    check_peak(peak)
    warmup, decay = (
        parse_tokens(getattr(options, name) or "0", field=f"--{name}", total=tokens)
        for name in ("warmup", "decay")
    )
    return rates.wsd(peak, tokens, warmup, decay, options.shape or "linear")


def _notes(fit: CurveFit) -> list[str]:
    error = fit.cv_error
    if error is None:
        return [f"warning: tested on no run left out; rms error {fit.rmse:.2g} of log loss"]
    return [f"tested: error {error:.2g} of log loss at the ends of {fit.runs} runs left out"]


def _tested(fit: CurveFit) -> dict[str, Any]:
    """The errors of a fit, and the ranges measured, ready for JSON."""
    ranges = {"tokens": (fit.since, fit.tokens), "batch": fit.batches, "lr": fit.rates}
    return {
        "cv_error": fit.cv_error,
        "rmse": fit.rmse,
        "runs": fit.runs,
        **{name: {"low": low, "high": high} for name, (low, high) in ranges.items()},
        "min_lr_over_peak": fit.min_lr_over_peak,
    }


def _figure(fit: CurveFit, curves: Curves) -> Any:
    """Predictions along runs since the fit has losses, and the losses measured there."""
    from bss.plots.curves import predicted_curves

    predicted, low, high = forecast(fit, curves)
    columns = {"tokens": curves.tokens, "loss": curves.loss, "predicted": predicted}
    table = curves.table(**columns, low=low, high=high)
    longest = table.groupby("run")["tokens"].transform("max")
    table = table.loc[table["tokens"] >= np.maximum(fit.since, EARLY * longest)]
    measured = table.dropna(subset="loss")
    return predicted_curves(table, None if measured.empty else measured)
