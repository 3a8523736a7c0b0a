"""Critical batches: bss fit critical, steps to a target; bss predict, at a model or a budget."""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bss import laws
from bss.cells import estimate
from bss.cli.fitting import (
    add_fit_arguments,
    fit_options,
    opened_tables,
    save_residuals,
    with_free,
)
from bss.cli.output import Output, Table, drawing, number
from bss.cli.predict import tested
from bss.cli.reading import add_reading_arguments, read_run_table, reading
from bss.errors import InputError
from bss.laws import CriticalFit
from bss.laws.base import Estimate
from bss.laws.critical.shape import CbsDefinition
from bss.laws.critical.values import NAMES
from bss.laws.power import PowerFit, predict
from bss.points.curve import default_targets, points
from bss.tables import read_points
from bss.tables.reading import without
from bss.units import format_tokens, parse_tokens, rounded_tokens
from bss.values import to_dict

SYMBOLS = {"params": "N", "tokens": "D"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss fit critical`."""
    add = parser.add_argument
    text = "CSV or Parquet: model, params or params_m, tokens, target_loss, batch, steps; "
    text += "or a runs directory"
    add("points", type=Path, help=text)
    add_reading_arguments(parser)
    add("--overhead", type=float, default=0.2, help="steps above linear scaling, 0.2 for 20%%")
    text = "a batch that scales linearly: 256, smallest of each curve, or 10%% of each b/a"
    add("--reference-batch", default="256", metavar="BATCH", help=text)
    add("--unit", default="sequences", choices=("sequences", "tokens"), help="of batches")
    add("--forecast", help="sizes or budgets to forecast at, as 7B,70B")
    text = "batch: the steps at each batch"
    add_fit_arguments(parser, run, resamples=2000, hold_out=text)


def run(options: argparse.Namespace) -> Output:
    """Fits critical batch sizes.

    Examples:
        bss fit critical STEPS.csv
        bss fit critical STEPS.csv --overhead 0.1 --level 0.8 --resamples 200
    """
    how = fit_options(options)
    measured, remarks = _points(options)
    measured = without(measured, options.drop)
    given = {"overhead": options.overhead, "reference": options.reference_batch}
    given |= {"unit": options.unit, "hold_out": options.hold_out, "options": how}
    fit, _ = with_free(options, lambda x: laws.fit_critical(measured, constraints=x, **given))
    save_residuals(options, fit)
    forecasts = _forecasts(fit, options.forecast) if options.forecast else {}
    payload = fit.to_dict()
    tables = [models_table(fit), definitions_table(fit), *opened_tables(fit, None, lambda _: {})]
    if forecasts and fit.law:
        name = fit.law.variables[0]
        payload["forecasts"] = [{name: x, "cbs": to_dict(value)} for x, value in forecasts.items()]
        rows = [(format_tokens(x), estimate(value)) for x, value in forecasts.items()]
        tables.append(Table("forecasts, with prediction intervals", (name, "critical batch"), rows))
    notes = [f"{law_line(fit, law)} ({name})" for name, law in fit.laws.items()]
    notes += [f"outlier: {one}" for one in fit.outliers]
    notes += [f"warning: {text}" for text in (*fit.warnings, *remarks)]
    return Output(payload, tables, notes, figure=drawing("critical.critical_figure", fit))


def _points(options: argparse.Namespace) -> tuple[pd.DataFrame, list[str]]:
    """The table of points, or a directory's: points.csv, else each model's at one target.

    That target is the lowest that every batch reaches; the law takes the best rate by itself.
    """
    given = options.points
    file = given / "points.csv" if given.is_dir() else given
    if not given.is_dir() or file.is_file():
        return _one_budget(read_points(file, reading(options))), []
    runs, remarks = read_run_table(given, reading(options))
    models = runs.groupby("model") if "model" in runs else [("", runs)]
    tables = [points(some, default_targets(some, 1, share=1.0)) for _, some in models]
    return _one_budget(pd.concat(tables, ignore_index=True)), remarks


def _one_budget(measured: pd.DataFrame) -> pd.DataFrame:
    """Points of runs, each target's at the largest budget of a model: runs end apart by remainders.

    A table that names no runs says itself which budget a target is of.
    """
    if "run" not in measured:
        return measured
    cell = ["model", "params", "target_loss", "kind", "seq_len"]
    largest = measured.groupby(cell, dropna=False)["budget_tokens"].transform("max")
    return measured.assign(budget_tokens=largest)


def models_table(fit: CriticalFit) -> Table:
    """One row per model and target."""
    error = fit.cv_error
    judged = "" if error is None else f", × {math.exp(error):.3f} in steps at left-out batches"
    title = f"critical batch: {CbsDefinition(fit.overhead, fit.reference)}{judged}; "
    title += f"batches in {fit.unit}"
    cells = {
        "model": lambda at: at.curve.model,
        "N": lambda at: size(at.curve.params),
        "D (tokens)": lambda at: size(at.curve.tokens),
        "target": lambda at: number(at.curve.target_loss),
        "reference": lambda at: number(at.reference),
        "S_min": lambda at: number(at.S_min.value, 6),
        "E_min": lambda at: number(at.E_min.value),
        "B_crit": lambda at: estimate(at.B_crit),
        "CBS": lambda at: estimate(at.cbs),
        "CBS by": lambda at: at.method if at.cbs.value else "",
        "CBS interpolated": lambda at: estimate(at.interpolated),
        "noise": lambda at: f"{at.noise:.1%}",
    }
    return Table.of(title, fit.fits, cells)


def size(count: float) -> str:
    """A number of parameters or tokens; a dash where it is not known."""
    return rounded_tokens(count) if math.isfinite(count) else "–"


def definitions_table(fit: CriticalFit) -> Table:
    """Critical batches and the law's exponents, over definitions."""
    laws = [row.law for row in fit.definitions if row.law]
    variables = laws[0].variables if laws else ()
    columns = ["definition", *(at.curve.model for at in fit.fits)]
    columns += [f"exponent of {SYMBOLS[name]}" for name in variables]
    rows = []
    for row in fit.definitions:
        exponents = row.law.exponents if row.law else [None] * len(variables)
        rows.append((row.name, *map(number, row.values), *map(estimate, exponents)))
    return Table("the exponent depends on the definition", columns, rows)


def law_line(fit: CriticalFit, law: PowerFit) -> str:
    """A law in a line, as CBS = 93.2·N^0.468 with its interval."""
    terms = zip(law.variables, law.exponents, law.leave_one_out, strict=True)
    factors = [
        f"{SYMBOLS[name]}^{number(exponent.value)} ({number(exponent.low)} – "
        f"{number(exponent.high)} at {exponent.level:.0%}; leaving one out {low:.3g} – {high:.3g})"
        for name, exponent, (low, high) in terms
    ]
    unit = {1e6: "in millions"}.get(law.unit, f"over {law.unit:g}")
    symbols = ", ".join(SYMBOLS[name] for name in law.variables)
    name, coefficient = NAMES[fit.quantity], number(law.coefficient.value)
    return f"{name} = {coefficient} · {' · '.join(factors)}; {symbols} {unit}"


def _forecasts(fit: CriticalFit, text: str) -> Mapping[int, Estimate]:
    if fit.law is None or len(fit.law.variables) != 1:
        raise InputError("--forecast: there is no law in one variable to forecast with; leave out")
    sizes = [parse_tokens(part, field="--forecast") for part in text.split(",")]
    return {size: predict(fit.law, {fit.law.variables[0]: size}) for size in sizes}


def predicted(fit: CriticalFit, options: argparse.Namespace) -> Output:
    """By the law in what is given: --params, --tokens or both."""
    given = {"params": options.params, "tokens": options.tokens}
    point = {
        name: parse_tokens(text, field=f"--{name}")
        for name, text in given.items()
        if text is not None
    }
    if not point:
        raise InputError("--params or --tokens: a critical fit is asked with one, as 7B")
    law = fit.law_of(list(point))
    curves = [at.curve for at, one in zip(fit.fits, fit.critical, strict=True) if one.value]
    fitted = {variable: [getattr(curve, variable) for curve in curves] for variable in point}
    ranges, warnings = tested(point, fitted, extrapolate=options.extrapolate)
    critical = predict(law, point)
    payload = {"kind": "prediction", "of": "critical", **point}
    payload |= {
        "critical_batch": to_dict(critical),
        "quantity": fit.quantity,
        "unit": fit.unit,
        "overhead": fit.overhead,
        "reference_batch": fit.reference,
        "tested": {**ranges, "points": law.points, "scatter": law.scatter},
    }
    title = ", ".join(f"{variable} {format_tokens(value)}" for variable, value in point.items())
    row = (f"critical batch in {fit.unit}", estimate(critical), critical.note)
    table = Table(f"at {title}, with a prediction interval", ("", "estimate", ""), [row])
    figure = drawing("predictions.critical_figure", fit, *next(iter(point.items())))
    notes = [law_line(fit, law), *warnings]
    return Output(payload, [table], notes, figure=figure if len(point) == 1 else None)
