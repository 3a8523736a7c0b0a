"""E(S): bss fit es, from loss curves; bss predict, tokens and steps to a loss or its best batch."""

import argparse
import dataclasses
import math
from collections.abc import Callable
from operator import attrgetter

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
from bss.cli.output import Output, Table, drawing, measured_tokens, number
from bss.cli.points import add_curve_arguments, measured_points
from bss.cli.predict import tested
from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.base import Estimate
from bss.laws.es import LAWS
from bss.laws.es.compare import compare
from bss.laws.es.values import CROSS_VALIDATED, REQUESTED, UNSELECTED, Comparison, TargetFit
from bss.points import rates
from bss.tables.reading import without
from bss.units import parse_tokens
from bss.values import to_dict

DRAWS = 200  # refits that a printed fit keeps, for predictions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss fit es`."""
    add = parser.add_argument
    add_curve_arguments(parser)
    text = f"{'; '.join(LAWS)}; or package.module:ATTRIBUTE of your own; by default it is chosen"
    add("--law", help=text)
    add("--compare", action="store_true", help="also: every law at left-out batches")
    add_fit_arguments(parser, run, resamples=500, hold_out="batch or run, each in turn")


def run(options: argparse.Namespace) -> Output:
    """Fits a law E(S), by default the one that predicts left-out batches best.

    Examples:
        bss fit es RUNS.parquet --targets 1.9,1.8
        bss fit es RUNS.parquet --targets 1.9 --compare --resamples 50 --plot es.png
    """
    points, warnings = measured_points(options)
    points, law = without(points, options.drop), options.law and LAWS[options.law]
    how = {"hold_out": options.hold_out, "options": fit_options(options, DRAWS)}
    fit, free = with_free(options, lambda held: laws.fit_es(points, law, constraints=held, **how))
    save_residuals(options, fit)
    fit = dataclasses.replace(fit, warnings=(*fit.warnings, *warnings))
    payload, tables = fit.to_dict(), [es_table(fit, rates.one_rate(points))]
    if options.compare:
        own = () if law is None or law.name in LAWS else (law,)
        earlier = fit.comparison if law is None else None  # of the same laws
        comparison = earlier or compare(points, [*LAWS.values(), *own])
        payload["comparison"] = to_dict(comparison)
        tables.append(comparison_table(comparison, fit.choice == CROSS_VALIDATED))
    elif fit.comparison is not None:
        tables.append(comparison_table(fit.comparison, fit.choice == CROSS_VALIDATED))
    tables += opened_tables(fit, free, _facts)
    payload |= {"free": free.to_dict()} if free else {}
    notes = [*_headline(fit), *(f"outlier: {one}" for one in fit.outliers)]
    notes += [f"warning: {text}" for text in fit.warnings]
    figure = drawing("laws.tokens_to_target", points, {fit.law_name: fit})
    return Output(payload, tables, notes, figure=figure)


def _facts(fit: EsFit) -> dict[str, str]:
    """What a constraint may change."""
    facts = {"rms error in log E at left-out batches": number(fit.cv_error, 3)}
    facts |= {name: estimate(one) for name, one in fit.joint_intervals.items()}
    for target in fit.fits:
        best = target.batches.get("B_crit", target.best)
        facts[f"best or critical batch at {target.target_loss:g}"] = estimate(best)
    return facts


def comparison_table(comparison: Comparison, is_choice: bool) -> Table:
    """Return the laws by the error of predicting left-out batches, lowest first."""
    chosen = {comparison.winner: " (chosen)"} if is_choice else {}
    cells = {
        "law": lambda row: row["law"] + chosen.get(row["law"], ""),
        "parameters": lambda row: row["parameters"],
        "rms error in log E": lambda row: number(row["interior_log_E"], 3),
        "at the edges": lambda row: number(row["edge_log_E"], 3),
    }
    return Table.of("prediction of left-out batches", comparison.table, cells)


def es_table(fit: EsFit, rate: float | None = None) -> Table:
    """One row per target loss; the best batch is at the rate of all runs, where they have one."""
    names = tuple(dict.fromkeys((*fit.law.batches, *fit.fits[0].batches)))
    at = {} if rate is None else {"B_opt": f"B_opt at rate {rates.rate_text(rate)}"}
    cells: dict[str, Callable[[TargetFit], str]] = {
        "target loss": lambda target: number(target.target_loss),
        "S_min": lambda target: number(target.S_min),
        "E_min": lambda target: measured_tokens(target.E_min),
        "S_opt": lambda target: number(target.S_opt),
    }
    for name in names:
        cells[at.get(name, name)] = lambda target, name=name: estimate(target.batches[name])
    if fit.choice == REQUESTED:
        cells |= {"status": attrgetter("status")}
    else:
        cells |= {"B_opt by": _method}
    cells |= {"measured": lambda target: estimate(target.measured)}
    error = fit.cv_error
    error = "" if error is None else f", × {math.exp(error):.2f} at left-out batches"
    title = f"E(S), {fit.label}{error}; S in steps, E in tokens, B in sequences; {fit.level:.0%}"
    return Table.of(f"{title} intervals", fit.fits, cells)


def _method(target: TargetFit) -> str:
    return target.best.method if target.best.value is not None else target.best.status


def _headline(fit: EsFit) -> list[str]:
    """The law in symbols with what it was chosen by, and why targets have no best batch."""
    numbers = (f"{name} = {number(value)}" for name, value in (fit.joint or {}).items())
    formula = ": ".join(filter(None, (fit.law.formula, ", ".join(numbers))))
    lines = [formula]
    if fit.choice == UNSELECTED:
        lines = ["no law is cross-validated with fewer than 6 batches at a target"]
    reasons: dict[str, list[str]] = {}
    for target in fit.fits:
        if "B_opt" in target.batches and target.best.value is None:
            reasons.setdefault(target.best.note, []).append(f"{target.target_loss:g}")
    return lines + [f"B_opt at {', '.join(at)} {note}" for note, at in reasons.items()]


def predicted(fit: EsFit, options: argparse.Namespace) -> Output:
    """At --loss and --batch the tokens and steps; at --loss alone the law's batches."""
    if options.loss is None or not options.loss > 0:
        raise InputError(f"--loss {options.loss}: expected the target loss in nats, as 2.5")
    question: dict[str, float] = {"loss": options.loss}
    if options.batch is not None:
        question["batch"] = parse_tokens(options.batch, field="--batch")
    losses = [target.target_loss for target in fit.fits]
    fitted = {"loss": losses, "batch": fit.batches}
    ranges, warnings = tested(question, fitted, extrapolate=options.extrapolate)
    if options.batch is not None:
        answers = _new_run(fit, **question)
    elif not (answers := fit.best_batches(options.loss)):
        raise InputError(
            f"--batch: missing, and the {fit.law.name} law has no best one; give a batch"
        )
    scatter, _ = fit.lack_of_fit
    counts = {"points": fit.points, "runs": fit.runs, "lack_of_fit": scatter}
    payload = {"kind": "prediction", "of": "es", "law": fit.law.name, **question}
    payload |= {**to_dict(answers), "tested": ranges | counts}
    rows = [(name, estimate(value), value.note) for name, value in answers.items()]
    title = ", ".join(f"{name} {number(value)}" for name, value in question.items())
    table = Table(f"at {title}, by the {fit.label}", ("", "estimate", ""), rows)
    about = f"points scatter {scatter:.2%} of the loss about the law; that is in the intervals"
    notes = [about] if fit.rows else []
    figure = drawing("predictions.es_figure", fit, options.loss, question.get("batch"))
    return Output(payload, [table], notes + warnings, figure=figure)


def _new_run(fit: EsFit, loss: float, batch: float) -> dict[str, Estimate]:
    """Return tokens and steps of a new run to a loss."""
    table = pd.DataFrame({"target_loss": [loss], "batch": [batch]})
    row = fit.predict(table).iloc[0]
    ends = {"tokens": ("tokens", "low", "high"), "steps": ("steps", "steps_low", "steps_high")}
    numbers = {
        name: [float(row[end]) if math.isfinite(row[end]) else None for end in columns]
        for name, columns in ends.items()
    }
    return {n: Estimate(*x, level=fit.level, note=row["note"]) for n, x in numbers.items()}
