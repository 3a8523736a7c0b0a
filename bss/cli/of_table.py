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
from bss.laws.final_loss.table import final_losses, read_losses
from bss.laws.final_loss.values import LossPrediction, OutlierRow
from bss.units import parse_tokens
from bss.values import to_dict

PICTURES = ("final_loss.table_figure", "rates_map.rates_figure")
LEFT_OUT = {
    "tokens": "the largest budgets",
    "params": "the largest model",
    "cell": "groups of (N, D), one at a time",
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
    add_fit_arguments(parser, run, resamples=200, hold_out=text)


def run(options: argparse.Namespace) -> Output:
    """Fits the law of final losses.

    Examples:
        bss fit table LOSSES.csv
        bss fit table LOSSES.csv --resamples 100 --json
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
        *_lr_notes(fit),
        *(outlier_text(one, fit.seq_len) for one in fit.outliers),
        f"{fit.level:.0%} intervals: {fit.method}",
        *(f"warning: {text}" for text in fit.warnings),
    ]
    tables = [left_out_table(fit), optima_table(fit), parameters_table(fit)]
    tables += opened_tables(fit, free, _facts)
    payload = fit.to_dict() | ({"free": free.to_dict()} if free else {})
    return Output(payload, tables, notes, figure=drawing(PICTURES[fit.with_lr], fit))


def _losses(options: argparse.Namespace) -> tuple[pd.DataFrame, list[str]]:
    """The table of final losses, or where a directory's finished runs end, and what is said."""
    if not options.runs.is_dir():
        return read_losses(options.runs, reading(options)), []
    runs, said = read_run_table(options.runs, reading(options), only_finished=True)
    return final_losses(runs), said


def left_out_table(fit: TableFit) -> Table:
    """Return errors at left-out runs of the law, and of each form at left-out (N, D)."""
    rows = [(f"law, {what}", number(fit.left_out[kind], 2)) for kind, what in LEFT_OUT.items()]
    errors = fit.law.cv_errors.items() if len(fit.law.cv_errors) > 1 else ()
    rows += [(f"{name} form, {LEFT_OUT['cell']}", number(error, 2)) for name, error in errors]
    return Table("errors at left-out runs near the best batch", ("left out", "nats (rms)"), rows)


def _facts(fit: TableFit) -> dict[str, str]:
    """What a constraint may change."""
    facts = {f"rms error at {LEFT_OUT[kind]}": number(x, 3) for kind, x in fit.left_out.items()}
    facts |= {f"{n} of {fit.law.heaviest}": estimate(one) for n, one in fit.parameters.items()}
    return facts | {
        f"exponent of B_opt in {n}": estimate(x) for n, x in fit.B_opt_exponents.items()
    }


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
    if fit.best_lrs is not None:
        rates = {(at.params, at.tokens): at for at in fit.best_lrs.optima}
        cells["best LR"] = lambda at: estimate(rates[at.params, at.tokens].lr, 1, 3)
    source = "law of losses" if fit.best is None else "power law through these"
    return Table.of(f"{title}; elsewhere by the {source}", fit.optima, cells)


def _lr_notes(fit: TableFit) -> list[str]:
    """How the best learning rate grows."""
    if fit.best_lrs is None:
        return []
    powers = fit.best_lrs.exponents.items()
    parts = [f"{name}^{estimate(power)}" for name, power in powers if power.value is not None]
    if not parts:
        return ["growth of the best learning rate unidentified"]
    coupling = fit.best_lrs.exponents["B"].value is not None
    more = "; `--lr-coupling from:FIT` takes the power of B" if coupling else ""
    return [f"the best learning rate grows as {' · '.join(parts)}{more}"]


def outlier_text(one: OutlierRow, seq_len: float | None) -> str:
    """Return a row far from the others, as `--drop` takes it."""
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
    return f"B_opt grows as {' · '.join(parts)}"


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
        rows.append(("best learning rate at this batch", estimate(prediction.best_lr, 1, 3)))
    if prediction.best_batch_at_lr is not None:
        at_lr = estimate(prediction.best_batch_at_lr, unit, 3)
        rows.append((f"best batch at this learning rate, {noun}", at_lr))
    if prediction.excess_loss is not None:
        rows.append(("loss above that of the best batch, nats", f"{prediction.excess_loss:.2g}"))
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
