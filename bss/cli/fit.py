"""bss fit: laws from measurements. `bss fit es RUNS.csv` fits E(S) to loss curves.

The other laws are in files of their own, registered here.
"""

import argparse
import dataclasses
import math

from bss.cli import fit_critical, fit_curve, fit_table, output
from bss.cli.output import Output, Table, estimate, measured_tokens, number
from bss.cli.points import add_curve_arguments, measured_points
from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.es import LAWS
from bss.laws.es.compare import Comparison, compare
from bss.laws.es.law import Law
from bss.laws.fitting.estimate import Options
from bss.points import rates

DRAWS = 200  # refits that a printed fit keeps, for predictions
_OTHERS = {
    "critical": (fit_critical, "critical batch sizes and their law, from steps to a target"),
    "table": (fit_table, "the law of final losses over model size, tokens and batch"),
    "curve": (fit_curve, "the functional scaling law, from loss curves under any schedule"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command lines of `bss fit`."""
    laws = parser.add_subparsers(dest="law_kind", metavar="LAW", required=True)
    es = laws.add_parser("es", help="E(S): tokens against steps to target losses")
    add_curve_arguments(es)
    told = f"{'; '.join(LAWS)}; or package.module:ATTRIBUTE of your own"
    es.add_argument("--law", default=next(iter(LAWS)), help=told)
    es.add_argument("--adam-clock", action="store_true", help="fit the surface's B_phi too")
    es.add_argument("--batch-exponent", metavar="M", help="m of the surface: 1, 0.5 or free")
    es.add_argument(
        "--compare", action="store_true", help="also: which law predicts left-out batches best"
    )
    es.add_argument("--resamples", type=int, default=500, help="bootstrap refits")
    output.add_output_arguments(es, run_es, plot=True)
    for name, (law, text) in _OTHERS.items():
        law.add_arguments(laws.add_parser(name, help=text, description=text))


def run_es(options: argparse.Namespace) -> Output:
    """Fits a law E(S)."""
    points, warnings = measured_points(options)
    law = _law(options)
    fit = fit_es(points, law, options=Options(options.resamples, draws=DRAWS))
    fit = dataclasses.replace(fit, warnings=(*fit.warnings, *warnings))
    payload, tables = fit.to_dict(), [es_table(fit, rates.one_rate(points))]
    if options.compare:
        comparison = compare(points, [*LAWS.values(), *(() if law.name in LAWS else (law,))])
        payload["comparison"] = comparison.to_dict()
        tables.append(comparison_table(comparison))
    notes = [_formula(fit), *(f"warning: {text}" for text in fit.warnings)]
    figure = output.drawing("laws.tokens_to_target", points, {fit.law.name: fit})
    return Output(payload, tables, notes, figure=figure)


def _law(options: argparse.Namespace) -> Law:
    """The law of a name, with what the options say of its members."""
    law, changes = LAWS[options.law], {}
    if options.batch_exponent is not None:
        changes["--batch-exponent"] = "m", _exponent(options.batch_exponent)
    if options.adam_clock:
        changes["--adam-clock"] = "B_phi", None
    for option, (name, _) in changes.items():
        if name not in law.__dataclass_fields__:
            raise InputError(f"{option}: the {law.name} law has no {name}; leave the option out")
    return dataclasses.replace(law, **dict(changes.values()))


def _exponent(text: str) -> float | None:
    try:
        value = None if text == "free" else float(text)
    except ValueError:
        value = math.nan
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"--batch-exponent {text!r}: expected a positive number, or free")
    return value


def comparison_table(comparison: Comparison) -> Table:
    """Laws by the error of predicting left-out batches, best first."""
    columns = ("law", "parameters", "rms error in log E", "at the edges")
    rows = [
        (
            row["law"] + (" (winner)" if row["law"] == comparison.winner else ""),
            row["parameters"],
            number(row["interior_log_E"], 3),
            number(row["edge_log_E"], 3),
        )
        for row in comparison.table
    ]
    return Table("prediction of left-out batches", columns, rows)


def es_table(fit: EsFit, rate: float | None = None) -> Table:
    """One row per target loss; the best batch is at the rate of all runs, where they have one."""
    names = fit.law.batches
    at = {} if rate is None else {"B_opt": f"B_opt at rate {rates.told(rate)}"}
    shown = (at.get(name, name) for name in names)
    columns = ("target loss", "S_min", "E_min", "S_opt", *shown, "status")
    rows = [
        (
            number(target.target_loss),
            number(target.S_min),
            measured_tokens(target.E_min),
            number(target.S_opt),
            *(estimate(target.batches[name]) for name in names),
            target.status,
        )
        for target in fit.fits
    ]
    title = f"E(S), {fit.law.name} law; S in steps, E in tokens, B in sequences"
    return Table(title, columns, rows)


def _formula(fit: EsFit) -> str:
    """The law in symbols; the parameters too where all targets share them."""
    numbers = (f"{name} = {number(value)}" for name, value in (fit.surface or {}).items())
    return ": ".join(filter(None, (fit.law.formula, ", ".join(numbers))))
