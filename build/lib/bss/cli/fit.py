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
from bss.laws.es.compare import compare
from bss.laws.es.law import Law
from bss.laws.es.values import ASKED, NONE_CHOSEN, Comparison, TargetFit
from bss.laws.fitting.estimate import Options
from bss.points import rates
from bss.tables.dropping import without
from bss.values import to_dict

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
    told = f"{'; '.join(LAWS)}; or package.module:ATTRIBUTE of your own; by default it is chosen"
    es.add_argument("--law", help=told)
    es.add_argument("--adam-clock", action="store_true", help="fit the surface's B_phi too")
    es.add_argument("--batch-exponent", metavar="M", help="m of the surface: 1, 0.5 or free")
    es.add_argument("--compare", action="store_true", help="also: every law at left-out batches")
    output.add_fit_arguments(es, resamples=500)
    output.add_output_arguments(es, run_es, plot=True)
    for name, (law, text) in _OTHERS.items():
        law.add_arguments(laws.add_parser(name, help=text, description=text))


def run_es(options: argparse.Namespace) -> Output:
    """Fits a law E(S), by default the one that predicts left-out batches best."""
    points, warnings = measured_points(options)
    points, law = without(points, options.drop), _law(options)
    made = Options(options.resamples, options.level, options.seed, DRAWS)
    fit = fit_es(points, law, options=made)
    fit = dataclasses.replace(fit, warnings=(*fit.warnings, *warnings))
    payload, tables = fit.to_dict(), [es_table(fit, rates.one_rate(points))]
    if options.compare:
        own = () if law is None or law.name in LAWS else (law,)
        made_before = fit.comparison if law is None else None  # of the same laws
        comparison = made_before or compare(points, [*LAWS.values(), *own])
        payload["comparison"] = to_dict(comparison)
        tables.append(comparison_table(comparison))
    notes = [*_headline(fit), *(f"outlier: {one}" for one in fit.outliers)]
    notes += [f"warning: {text}" for text in fit.warnings]
    drawn = {one.law.name: one for one in fit.averaged if one.law.batches}
    figure = output.drawing("laws.tokens_to_target", points, drawn)
    return Output(payload, tables, notes, figure=figure)


def _law(options: argparse.Namespace) -> Law | None:
    """The law of a name, with what the options say of its members; None where it is chosen."""
    changes = {}
    if options.batch_exponent is not None:
        changes["--batch-exponent"] = "m", _exponent(options.batch_exponent)
    if options.adam_clock:
        changes["--adam-clock"] = "B_phi", None
    if options.law is None and not changes:
        return None
    law = LAWS[options.law or next(iter(LAWS))]
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
    chosen = dict.fromkeys(comparison.level, " (chosen)")
    rows = [
        (
            row["law"] + chosen.get(row["law"], ""),
            row["parameters"],
            number(row["interior_log_E"], 3),
            number(row["edge_log_E"], 3),
        )
        for row in comparison.table
    ]
    return Table("prediction of left-out batches", columns, rows)


def es_table(fit: EsFit, rate: float | None = None) -> Table:
    """One row per target loss; the best batch is at the rate of all runs, where they have one."""
    names = tuple(dict.fromkeys((*fit.law.batches, *fit.fits[0].batches)))
    asked = fit.choice == ASKED
    at = {} if rate is None else {"B_opt": f"B_opt at rate {rates.told(rate)}"}
    shown = (at.get(name, name) for name in names)
    columns = ("target loss", "S_min", "E_min", "S_opt", *shown)
    columns += ("vertex", "status") if asked else ("of", "depth")
    rows = []
    for target in fit.fits:
        cells = (
            number(target.target_loss),
            number(target.S_min),
            measured_tokens(target.E_min),
            number(target.S_opt),
            *(estimate(target.batches[name]) for name in names),
        )
        own = (estimate(target.vertex), target.status)
        rows.append((*cells, *(own if asked else (_source(target), _evidence(target)))))
    title = f"E(S), {_law_told(fit)}; S in steps, E in tokens, B in sequences; {fit.level:.0%}"
    return Table(f"{title} intervals", columns, rows)


def _law_told(fit: EsFit) -> str:
    return f"{fit.name} law" + (
        "" if fit.error is None else f", {_times(fit.error)} at left-out batches"
    )


def _times(error: float) -> str:
    return f"× {math.exp(error):.2f}"


def _source(target: TargetFit) -> str:
    best = target.best or target.vertex
    return best.source if best.value is not None else best.status


def _evidence(target: TargetFit) -> str:
    """How deep the valley is, in scatters of a run."""
    told = target.vertex.evidence
    return f"{told.depth / told.scatter:.1f} scatters" if told.depth and told.scatter else "–"


def _headline(fit: EsFit) -> list[str]:
    """The law in symbols with what it was chosen by, and why targets have no best batch."""
    numbers = (f"{name} = {number(value)}" for name, value in (fit.surface or {}).items())
    formula = ": ".join(filter(None, (fit.law.formula, ", ".join(numbers))))
    told = [formula if fit.choice == ASKED else f"{formula}; {fit.choice}"]
    if fit.choice == NONE_CHOSEN:
        told = [fit.choice]
    reasons: dict[str, list[str]] = {}
    for target in fit.fits:
        if (best := target.best) is not None and best.value is None:
            reasons.setdefault(best.note, []).append(f"{target.target_loss:g}")
    source = fit.fits[-1].vertex.evidence.source
    told += [f"B_opt at {', '.join(at)} {note}" for note, at in reasons.items()]
    return told + ([f"the scatter is that of {source}"] if source else [])
