"""Loss curves, any LR and batch schedule: bss fit curve; bss predict, of a schedule or of runs."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

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
from bss.laws.functional.forecast import (
    along,
    check_tested,
    forecast,
    last_losses,
    moved,
    tested,
)
from bss.laws.functional.paths import plan_path
from bss.laws.functional.problem import CLOCKS
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.tables import Reading
from bss.tables.reading import without
from bss.units import format_tokens, parse_tokens
from bss.values import to_dict

LAW = "L = L_0 + c_1 (1 + T/T_0)^-s + ∫ [A_0 + A_1 (1 + u/T_0)^-s] ν (1 + c_K (T − u))^-q du"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss fit curve`."""
    add = parser.add_argument
    text = (
        "a runs directory, or CSV or Parquet: run, batch, lr, loss (or eval_loss; missing where a "
        "row has the schedule alone), step or tokens, seq_len or batch_tokens; constant runs, and "
        "some that change batch or rate"
    )
    add("runs", type=Path, help=text)
    add_reading_arguments(parser)
    text = f"{', '.join(CLOCKS)}, or with a power of the rate in its time, as adam^0.5; by default "
    add("--clock", help=f"{text}the one that predicts left-out runs best")
    add("--warmup", default="0", help="tokens of warm-up, whose losses are left out")
    text = "leave losses before out: tokens, or a percentage of the longest run; by default the "
    add("--since", help=f"{text}start that predicts left-out runs best")
    text = "run, batch, horizon, peak or cell (both of these), each in turn"
    add_fit_arguments(parser, run, resamples=100, hold_out=text)


def run(options: argparse.Namespace) -> Output:
    """Fits the law.

    Examples:
        bss fit curve RUNS.parquet
        bss fit curve RUNS.parquet --since 50% --resamples 20 --json
    """
    how = fit_options(options)
    runs, remarks = read_run_table(options.runs, reading(options), need_loss=False)
    warmup = parse_tokens(options.warmup, field="--warmup")
    longest, since = max(int(n) for n in runs["tokens"]), options.since
    since = None if since is None else parse_tokens(since, field="--since", total=longest)
    runs = without(runs, options.drop)
    with progress() as report:
        given = {"clock": options.clock, "warmup": warmup, "since": since}
        given |= {"hold_out": options.hold_out, "options": how, "report": report}
        fit, free = with_free(options, lambda x: laws.fit_curve(runs, constraints=x, **given))
    save_residuals(options, fit, runs, warmup)
    known = fit.easy_by.value is not None
    notes = [
        f"{LAW}, ν = lr^p/B^m, T = Σ lr^{float(fit.law.a):g} / sqrt(1 + B_phi/B)",
        f"rms error of log loss {fit.rmse:.2g} over {fit.losses} losses of {fit.runs} runs",
        *([f"{fit.losses} of {fit.measured} losses read"] if fit.losses < fit.measured else []),
        *(
            f"losses since {format_tokens(one.since)}: {one.left_out:.2g} at left-out runs"
            for one in fit.starts
        ),
        *(f"outlier: {one}" for one in fit.outliers),
        *([f"{_task(fit.easy_by)}: s − (q − 1) = {estimate(fit.easy_by)}"] * known),
        *(f"warning: {text}" for text in (*fit.warnings, *remarks)),
    ]
    figure = drawing("curves.fitted_curves", fit, runs, warmup=warmup)
    payload = fit.to_dict() | ({"free": free.to_dict()} if free else {})
    tables = [parameters_table(fit), *([clocks_table(fit)] if fit.left_out_rmse else [])]
    return Output(payload, [*tables, *opened_tables(fit, free, _facts)], notes, figure=figure)


def clocks_table(fit: CurveFit) -> Table:
    """What each clock has not seen: ends of runs left out one by one, by horizon and by peak."""
    rows = [
        (
            name,
            number(error, 2),
            *(number(fit.left_out_by.get(name, {}).get(by), 2) for by in BEYOND),
        )
        for name, error in fit.left_out_rmse.items()
    ]
    title = f"each clock: rms error of log loss at left-out ends, losses since {fit.since:,} tokens"
    return Table(title, ("clock", "runs", *(f"a {by} of theirs" for by in BEYOND)), rows)


def _facts(fit: CurveFit) -> dict[str, str]:
    """What a constraint may change."""
    facts = {"rms error at left-out ends": number(fit.left_out_rmse.get(fit.clock), 3)}
    facts |= {"clock": fit.clock, "since": format_tokens(fit.since)}
    return facts | {name: estimate(one) for name, one in fit.parameters.items()}


def _task(easy_by: Estimate) -> str:
    """Easy or hard, where the interval has one sign."""
    low, high = easy_by.low, easy_by.high
    if low is not None and low > 0:
        return "an easy task"
    return "a hard task" if high is not None and high < 0 else "easy or hard is undecided"


def parameters_table(fit: CurveFit) -> Table:
    """The parameters with their intervals; a held one is the value that predictions use."""
    law = fit.law._asdict()
    rows = [
        (name, estimate(value), number(float(law[name])), value.note.partition(":")[0])
        for name, value in fit.parameters.items()
    ]
    status = fit.status if fit.identified or fit.status != "converged" else "noise unidentified"
    error = fit.left_out_rmse.get(fit.clock)
    judged = "" if error is None else f", off by {error:.2g} in log loss at left-out ends"
    title = f"functional scaling law, {fit.clock} clock, {status}{judged}"
    return Table(title, ("parameter", "estimate", "in predictions", ""), rows)


BEYOND = ("horizon", "peak")
EARLY = 0.02  # of the longest run: no losses are drawn before it
OF_SCHEDULE = ("batch", "tokens", "lr", "decay", "shape")


def predicted(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of a schedule, or of each run of a table, with its interval."""
    return (of_runs if options.runs else of_schedule)(fit, options)


def of_schedule(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of the schedule that the options ask for, of no run yet."""
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
        "tested": tested(fit),
        "extrapolates": list(beyond),
    }
    row = (str(schedule), format_tokens(tokens), f"{steps:,}", estimate(loss))
    columns = ("batch", "tokens", "steps", f"loss ({fit.level:.0%} of runs)")
    table = Table("predicted loss, nats per token", columns, [row])
    notes = [*_notes(fit), *(f"beyond what was tested: {what}" for what in beyond)]
    notes += [f"warning: {text}" for text in moved(fit, curves) if text]
    return Output(payload, [table], notes, figure=lambda: _figure(fit, curves))


def of_runs(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of each run of the table that the options name."""
    for name in OF_SCHEDULE:
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: the runs of --runs have their own; leave one of them out")
    reading = Reading.parse(options.columns, fit.seq_len)
    table, remarks = read_run_table(options.runs, reading, need_loss=False)
    warmup = parse_tokens(options.warmup or "0", field="--warmup")
    ends = curves_of(table, warmup=warmup, ends=True)
    beyond = check_tested(fit, ends, extrapolate=options.extrapolate)
    runs = []
    for i, loss in enumerate(last_losses(fit, ends)):
        measured = float(ends.loss[i, 0]) if np.isfinite(ends.loss[i, 0]) else None
        error = None if measured is None else (loss.value or 0) - measured
        tokens = int(ends.tokens[i, 0])
        runs.append(PredictedRun(ends.runs[i], tokens, loss, measured, error, beyond[i]))
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
    told = zip(runs, moved(fit, ends), strict=True)
    notes += [f"warning: {one.run}: {text}" for one, text in told if text]
    notes += [f"rms error {rmse:.2g} nats over {len(errors)} runs"] if errors else []
    notes += [f"{one.run}, beyond what was tested: {x}" for one in runs for x in one.extrapolates]
    title = "predicted losses at the last loss of each run, nats"
    return Output(
        payload | {"tested": tested(fit)},
        [Table.of(title, runs, cells)],
        notes,
        figure=lambda: _figure(fit, ends, table, warmup),
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
    error = fit.left_out_rmse.get(fit.clock)
    if error is None:
        return [f"warning: tested on no run left out; rms error {fit.rmse:.2g} of log loss"]
    return [f"tested: error {error:.2g} of log loss at the ends of {fit.runs} runs left out"]


def _figure(fit: CurveFit, ends: Curves, runs: pd.DataFrame | None = None, warmup: int = 0) -> Any:
    """Predictions along runs, where the fit has losses, and what of a table was measured there."""
    from bss.plots.curves import predicted_curves

    curves, tokens = along(ends)
    predicted, low, high = forecast(fit, curves)
    used = tokens >= max(fit.since, EARLY * tokens.max())
    bands = curves.table(used, tokens=tokens, predicted=predicted, low=low, high=high)
    first = max(fit.since, round(EARLY * float(ends.tokens[:, 0].max())))
    seen = np.isfinite(ends.loss[:, 0]) & (ends.tokens[:, 0] > max(first, warmup))
    if runs is None or not np.any(seen):
        return predicted_curves(bands, None)
    thinned = curves_of(runs, warmup=warmup, since=first)
    measured = thinned.table(thinned.weight > 0, tokens=thinned.tokens, loss=thinned.loss)
    return predicted_curves(bands, measured)
