"""Final losses: bss fit table, its forms weighed by left-out runs; bss predict, of one run."""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from bss import laws
from bss.cells import estimate, range_text
from bss.cli.fitting import (
    add_fit_arguments,
    fit_options,
    opened_tables,
    save_residuals,
    with_free,
)
from bss.cli.of_table_runs import of_runs
from bss.cli.output import Output, Table, drawing, measured_tokens, number, progress
from bss.cli.reading import add_reading_arguments, read_run_table, reading
from bss.errors import InputError
from bss.laws import TableFit
from bss.laws.base import UNIDENTIFIED, Estimate, ToleranceRange
from bss.laws.final_loss.best import TOLERANCES
from bss.laws.final_loss.forms import FORMS
from bss.laws.final_loss.rates_table import rates_table
from bss.laws.final_loss.table import final_losses, read_losses
from bss.laws.final_loss.values import LossPrediction, OutlierRow
from bss.units import parse_tokens
from bss.values import to_dict

PICTURES = ("final_loss.table_figure", "rates_map.rates_figure")
DIRECTIONS = {
    "tokens": ("the largest budgets", "beyond"),
    "params": ("the largest model", "beyond"),
    "cell": ("(N, D) in turn", "inside"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss fit table`."""
    text = "CSV or Parquet, a row per run: params, tokens, loss, batch and seq_len or "
    text += "batch_tokens; lr where it was varied; or a runs directory"
    parser.add_argument("runs", type=Path, help=text)
    add_reading_arguments(parser)
    text = f"average these only: {', '.join(FORMS)}, or package.module:ATTRIBUTE"
    parser.add_argument("--form", action="append", metavar="NAME", help=text)
    text = 'params, tokens, batch, cell or run in turn, or a condition as "tokens>=80B"'
    add_fit_arguments(parser, run, resamples=300, hold_out=text)


def run(options: argparse.Namespace) -> Output:
    """Fits the law of final losses.

    Examples:
        bss fit table LOSSES.csv
        bss fit table LOSSES.csv --resamples 20 --json
    """
    how = fit_options(options)
    table, said = _losses(options)
    with progress() as report:
        given = {"hold_out": tuple(options.hold_out), "forms": options.form, "options": how}
        given |= {"drop": options.drop, "progress": report}
        fit, free = with_free(
            options, lambda held: laws.fit_table(table, constraints=held, **given)
        )
    save_residuals(options, fit)
    fit = dataclasses.replace(fit, warnings=(*fit.warnings, *said))
    error = "" if fit.cv_error is None else f"; {fit.cv_error:.2g} nats at left-out (N, D)"
    notes = [
        f"{fit.law.text()}; {fit.formula}; sizes at the middle of the table",
        f"rms error {fit.rmse:.2g} nats over {len(fit.law.points.loss)} points{error}",
        _growth(fit),
        *_rates_notes(fit),
        *(outlier_text(one, fit.seq_len) for one in fit.outliers),
        f"{fit.level:.0%} intervals: {fit.method}",
        *(f"warning: {text}" for text in fit.warnings),
    ]
    tables = [left_out_table(fit), optima_table(fit), parameters_table(fit)]
    tables[2:2] = [forms_table(fit)] if len(fit.law.thetas) > 1 else []
    tables += opened_tables(fit, free, _facts)
    if fit.best_rates is not None:
        tables.insert(2, rates_table(fit.best_rates, fit.seq_len))
    payload = fit.to_dict() | ({"free": free.to_dict()} if free else {})
    return Output(payload, tables, notes, figure=drawing(PICTURES[fit.with_lr], fit))


def _losses(options: argparse.Namespace) -> tuple[pd.DataFrame, list[str]]:
    """The table of final losses, or where a directory's finished runs end, and what is said."""
    if not options.runs.is_dir():
        return read_losses(options.runs, reading(options)), []
    runs, said = read_run_table(options.runs, reading(options), only_finished=True)
    return final_losses(runs), said


def left_out_table(fit: TableFit) -> Table:
    """Errors at runs that were not seen, extrapolation first; what a user asked for below."""
    rows = [
        (what, "–", number(fit.left_out[kind], 2), fit.law.text(regime))
        for kind, (what, regime) in DIRECTIONS.items()
    ]
    rows += [(h.out, number(h.rmse, 2), number(h.near, 2), "") for h in fit.hold_out]
    columns = ("left out", "rms error, nats", "near the best batch", "forms by their weights")
    return Table("errors at runs left out", columns, rows)


def _facts(fit: TableFit) -> dict[str, str]:
    """What a constraint may change."""
    facts = {
        f"rms error at {DIRECTIONS[kind][0]}": number(x, 3) for kind, x in fit.left_out.items()
    }
    facts |= {f"{n} of {fit.law.heaviest}": estimate(one) for n, one in fit.parameters.items()}
    return facts | {
        f"exponent of B_opt in {n}": estimate(x) for n, x in fit.B_opt_exponents.items()
    }


def forms_table(fit: TableFit) -> Table:
    """What each form has not seen."""
    errors = fit.law.cv_errors
    rows = [(name, *(number(errors[regime][name], 2) for regime in errors))
            for name in fit.law.thetas]  # fmt: skip
    return Table("each form: left-out errors in nats", ("form", *errors), rows)


def parameters_table(fit: TableFit) -> Table:
    """The parameters of the heaviest form inside the table with their intervals."""
    middle = (measured_tokens(x) for x in np.exp(fit.law.points.centres[:3]).tolist())
    N, D, B = middle
    rows = [
        (name, estimate(value), value.note.removeprefix(UNIDENTIFIED))
        for name, value in fit.parameters.items()
    ]
    title = f"{fit.law.heaviest} form, {fit.status}; at N {N}, D {D}, B {B} tokens"
    return Table(title, ("parameter", "estimate", ""), rows)


def optima_table(fit: TableFit) -> Table:
    """The best batch at each size and budget, and the batches as good."""
    unit, counted = (fit.seq_len, "sequences = tokens") if fit.seq_len else (1, "tokens")
    title = f"best batch, {fit.level:.0%} intervals, in {counted}"
    cells = {
        "params": lambda at: measured_tokens(at.params),
        "tokens": lambda at: measured_tokens(at.tokens),
        "B_opt": lambda at: _sizes(at.batch, unit),
        "measured": lambda at: estimate(at.measured, unit, 3),
        "within .003 nats": lambda at: _span(at.batch.within(TOLERANCES[0]), unit),
        ".005": lambda at: _span(at.batch.within(TOLERANCES[1]), unit),
        "": lambda at: at.batch.why,
    }
    source = "law of losses" if fit.best is None else "power law through these"
    return Table.of(f"{title}; elsewhere by the {source}", fit.optima, cells)


def _rates_notes(fit: TableFit) -> list[str]:
    """The law of the rate, and how the best one grows."""
    if fit.best_rates is None:
        return []
    powers = fit.best_rates.exponents.items()
    told = {name: power for name, power in powers if power.value is not None}
    parts = [f"{name}^{estimate(power)}" for name, power in told.items()]
    grows = f"the best rate grows as {' · '.join(parts)}" if parts else "the best rate is not told"
    return [grows + ("; `--lr-coupling from:FIT` takes that of B" if "B" in told else "")]


def outlier_text(one: OutlierRow, seq_len: float | None) -> str:
    """A row far from the others, as `--drop` takes it, and what it does."""
    name, size = (
        ("batch", one.batch_tokens / seq_len) if seq_len else ("batch_tokens", one.batch_tokens)
    )
    side = "above" if one.above > 0 else "below"
    rate = "" if one.lr is None else f",lr={one.lr:.10g}"
    return (
        f"outlier, left out: params={one.params:.10g},tokens={one.tokens:.10g},{name}={size:.10g}"
        f"{rate}: {abs(one.above):.2g} {side} its (params, tokens), {one.times:.0f} times what is "
        "expected (as --drop takes it)"
    )


def _growth(fit: TableFit) -> str:
    exponents = fit.B_opt_exponents
    if exponents["D"].value is None and exponents["N"].value is None:
        return f"growth of B_opt {exponents['D'].note}"
    parts = [
        f"{name}^{estimate(exponents[name])}"
        for name in ("N", "D")
        if exponents[name].value is not None
    ]
    less = exponents["D_less_N"]
    apart = f"; D's exponent less N's {estimate(less)}" if less.value is not None else ""
    return f"B_opt grows as {' · '.join(parts)}{apart}"


def _span(alike: ToleranceRange | None, unit: float) -> str:
    """The batches as good as the best: in sequences, then in tokens; a dash where none are told."""
    span = range_text(alike, unit)
    if alike is None or unit == 1 or None in (alike.low, alike.high):
        return span
    return f"{span} = {' – '.join(measured_tokens(end) for end in (alike.low, alike.high))}"


def _sizes(batch: Estimate, unit: float) -> str:
    """A best batch in sequences, then in tokens."""
    span = estimate(batch, unit, 3)
    tokens = unit != 1 and batch.value is not None
    return f"{span} = {measured_tokens(batch.value)}" if tokens else span


def predicted(fit: TableFit, options: argparse.Namespace) -> Output:
    """The answer at --params, --tokens and --batch; without --batch at the best one.

    Or of every run of --runs, at its own rate.
    """
    if options.runs is not None:
        return of_runs(fit, options)
    if options.columns is not None:
        raise InputError("--columns: is of --runs; name a table, or leave it out")
    for name in ("params", "tokens"):
        if getattr(options, name) is None:
            raise InputError(f"--{name}: missing; a table fit is asked at --params and --tokens")
    params = parse_tokens(options.params, field="--params")
    tokens = parse_tokens(options.tokens, field="--tokens")
    seq_len = options.seq_len or fit.seq_len
    if options.batch is None:
        best = fit.best_batch(params, tokens)
        if (size := best.value) is None:
            raise InputError(f"--batch: missing, and B_opt is {best.note}; give a batch")
    elif seq_len is None:
        raise InputError("--seq-len: missing; the table has none, so say what a sequence holds")
    else:
        size = parse_tokens(options.batch, field="--batch") * seq_len
    how = {"extrapolate": options.extrapolate}
    prediction = fit.prediction(params, tokens, size, options.lr, **how)
    seen = {name: to_dict(size) for name, size in fit.tested.items()}
    payload = {
        "kind": "prediction",
        "of": "table",
        "params": params,
        "tokens": tokens,
        "batch_tokens": size,
        "seq_len": seq_len,
        **to_dict(prediction),
        "tested": {"left_out": prediction.error, "beyond": prediction.beyond, **seen},
    }
    figure = drawing("final_loss.prediction_figure", fit, params, tokens, size, prediction)
    table = prediction_table(prediction, seq_len)
    return Output(payload, [table], _notes(prediction), figure=figure)


def prediction_table(prediction: LossPrediction, seq_len: float | None) -> Table:
    """The loss of the run that was asked, and the best batch beside it."""
    unit, noun = (seq_len, "sequences") if seq_len else (1, "tokens")
    best = prediction.best_batch
    rows = [
        ("loss, nats", estimate(prediction.loss)),
        (f"best batch, {noun}", estimate(best, unit, 3)),
        *((f"batches within {one.rise:g} nats", _span(one, unit)) for one in best.ranges),
    ]
    if prediction.best_lr is not None:
        rows.append(("best rate at this batch", estimate(prediction.best_lr, 1, 3)))
    if prediction.best_batch_at_lr is not None:
        at_lr = estimate(prediction.best_batch_at_lr, unit, 3)
        rows.append((f"best batch at this rate, {noun}", at_lr))
    if prediction.given_up is not None:
        rows.append(("given up against the best batch, nats", f"{prediction.given_up:.2g}"))
    title = f"{prediction.form}; {prediction.loss.level:.0%} intervals"
    return Table(title, ("", "prediction"), rows)


def _notes(prediction: LossPrediction) -> list[str]:
    notes = []
    if prediction.error is not None:
        where = "beyond the table" if prediction.beyond else "inside the table"
        notes.append(f"rms error at left-out runs {where}: {prediction.error:.2g} nats")
    for name, times in prediction.beyond.items():
        notes.append(f"warning: {name} {times:.3g} times outside what was measured")
    if prediction.best_batch.note:
        notes.append(f"best batch {prediction.best_batch.note}")
    return notes
