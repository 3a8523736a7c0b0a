"""bss predict, from a fit of loss curves: the loss of a schedule, or of the runs of a table."""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bss.advice.of_curve import asked_peak
from bss.cli.output import Output, Table, estimate, number
from bss.cli.plan import check_peak, parse_budget
from bss.cli.reading import read_run_table
from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.fitting.estimate import Estimate
from bss.laws.functional.curves import Curves, curves_of, stack
from bss.laws.functional.forecast import last_losses, tested, untested
from bss.laws.functional.paths import plan_path
from bss.predictions.registration import Prediction
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.tables import Reading
from bss.units import format_tokens, parse_tokens
from bss.values import to_dict

OF_SCHEDULE = ("batch", "tokens", "lr", "decay", "shape")


class PredictedRun(NamedTuple):
    """The loss at the end of a run, and what was measured there, if anything."""

    run: str
    tokens: int
    loss: Estimate
    measured: float | None
    error: float | None
    extrapolates: tuple[str, ...]


def predicted(fit: CurveFit, options: argparse.Namespace) -> Output:
    """The loss at the end of a schedule, or of each run of a table, with its interval."""
    return (of_runs if options.runs else of_schedule)(fit, options)[0]


def _check_converged(fit: CurveFit, path: Path) -> None:
    if fit.status == "not converged":
        raise InputError(f"--from {path}: the fit did not converge; fit other losses")


def of_schedule(fit: CurveFit, options: argparse.Namespace) -> tuple[Output, Prediction]:
    """The loss at the end of the schedule that the options ask for, of no run yet."""
    _check_converged(fit, options.fit)
    for name in ("batch", "tokens"):
        if getattr(options, name) is None:
            raise InputError(f"--{name}: missing; give a schedule (--batch, --tokens) or --runs")
    tokens = parse_budget(options.tokens)
    schedule = BatchSchedule.parse(options.batch, total=tokens)
    rate = _rate(fit, options, tokens)
    path = plan_path(schedule, tokens, fit.seq_len, rate)
    curves = stack([path], fit.seq_len)
    beyond = _beyond(fit, curves, options.extrapolate)[0]
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
    lengths = {"warmup": int(rate.warmup), "decay": int(rate.decay)}
    settings = ScheduleConfig(tokens, schedule, **lengths, shape=rate.shape)
    prediction = Prediction(
        str(schedule),
        (),
        payload["tokens"],
        loss,
        ending=rate.ending,
        peak_lr=rate.peak,
        schedule=settings,
        extrapolates=beyond,
    )
    return Output(payload, [table], notes), prediction


def of_runs(
    fit: CurveFit, options: argparse.Namespace
) -> tuple[Output, list[PredictedRun], pd.DataFrame]:
    """The loss at the end of each run of the table that the options name, and this table."""
    _check_converged(fit, options.fit)
    for name in OF_SCHEDULE:
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: the runs of --runs have their own; leave one of them out")
    reading = Reading.parse(options.columns, fit.seq_len)
    table, remarks = read_run_table(options.runs, reading, need_loss=False)
    warmup = parse_tokens(options.warmup or "0", field="--warmup")
    ends = curves_of(table, warmup=warmup, ends=True)
    beyond = _beyond(fit, ends, options.extrapolate)
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
    notes += [f"rms error {rmse:.2g} nats over {len(errors)} runs"] if errors else []
    notes += [f"{one.run}, beyond what was tested: {x}" for one in runs for x in one.extrapolates]
    title = "predicted losses at the last loss of each run, nats"
    output = Output(payload | {"tested": tested(fit)}, [Table.of(title, runs, cells)], notes)
    return output, runs, table


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


def _beyond(fit: CurveFit, curves: Curves, extrapolate: bool) -> list[tuple[str, ...]]:
    """What is beyond what the fit was tested for, of each run; refused unless it was asked for."""
    beyond = untested(fit, curves)
    for run, exceeded in zip(curves.runs, beyond, strict=True):
        if exceeded and not extrapolate:
            raise InputError(
                f"run {run}: beyond what the fit was tested for: {'; '.join(exceeded)}; "
                "ask within it, or with --extrapolate"
            )
    return beyond


def _notes(fit: CurveFit) -> list[str]:
    error = fit.left_out_rmse.get(fit.clock)
    if error is None:
        return [f"warning: tested on no run left out; rms error {fit.rmse:.2g} of log loss"]
    return [f"tested: error {error:.2g} of log loss at the ends of {fit.runs} runs left out"]
