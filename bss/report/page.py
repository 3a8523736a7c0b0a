"""Writes the report of a results directory: one HTML file with inline pictures, no network.

A section stands where the results hold what it shows.
"""

import base64
import re
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from bss import plots
from bss.errors import InputError
from bss.files import write_text
from bss.laws.base import Fit
from bss.laws.es.values import REQUESTED
from bss.laws.final_loss.rates_table import rates_table
from bss.plots.curves import fitted_curves, varied_curves
from bss.plots.final_loss import table_figure
from bss.plots.rates_map import rates_figure
from bss.plots.residuals import residuals_figure
from bss.plots.style import svg
from bss.points.batches import alike
from bss.points.curve import evaluated
from bss.policies.follow_optimum import optimal_batch
from bss.report import tables
from bss.report.findings import fit_warnings, peak_text, short_answer, unidentified
from bss.report.results import Reported, read_results
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.stats import Comparison
from bss.tables import loss_column
from bss.units import format_tokens, parse_tokens

TEMPLATE = "page.html.jinja"


def write_report(results: Path, file: Path) -> None:
    """Write the report of an experiment, whole or not at all.

    Args:
        results: directory with experiment.json, and any of runs.parquet, points.csv, fits.json,
            comparison.json, fit.json, schedule.json, contenders.csv, other CSV
            tables and PNG pictures.
        file: the HTML file.

    Raises:
        InputError: a file of the results is damaged, or the page cannot be written.
    """
    write_results(read_results(Path(results)), Path(file))


def write_results(results: Reported, file: Path) -> None:
    """Write the page of results, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["symbols"] = _symbols
    page = environment.get_template(TEMPLATE).render(_content(results))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, page)
    except OSError as error:
        raise InputError(f"report: {file} cannot be written: {error.strerror}") from None


def _content(results: Reported) -> dict[str, Any]:
    """Everything the template shows; a section whose value is empty is left out."""
    fits = [fit for group in results.fits.values() for fit in group.values()]
    contenders, final = results.contenders, results.table_fit
    plan = _plans(results.schedule)[0] if results.schedule else None
    runs = None if results.runs is None else _shown(results.runs)
    opened = _opened(results)
    return vars(results) | {
        "question": results.experiment.get("question", ""),
        "answers": short_answer(results) or results.experiment.get("conclusions", []),
        "figures": {name: Markup(svg(it, name)) for name, it in _figures(results, runs).items()},
        "every": None if results.runs is None else tables.runs_table(results.runs),
        "shown": 0 if runs is None else runs["run"].nunique(),
        "setting": "" if runs is None else _setting(runs),
        "runs": runs,
        "held_out": runs is None or loss_column(runs) == "eval_loss",
        "count": 0 if results.runs is None else results.runs["run"].nunique(),
        "fits": {group: tables.batch_table(laws) for group, laws in results.fits.items()},
        "warnings": [*results.remarks, *fit_warnings(results)],
        "unidentified": unidentified(results),
        "intervals": fits[0] if fits else None,
        "comparisons": {
            group: (tables.comparison_table(it), it) for group, it in results.comparisons.items()
        },
        "parameters": tables.parameter_table(results.curve_fit) if results.curve_fit else None,
        "optima": tables.optima_table(final) if final and final.status == "converged" else None,
        "best_rates": rates_table(final.best_rates, final.seq_len)
        if final and final.best_rates
        else None,
        "cv_error": opened["es"].cv_error if "es" in opened else None,
        "followed": results.schedule is not None and _law_batch(results) is not None,
        "plan": plan,
        "contenders": [] if contenders is None else tables.contender_tables(contenders),
        "tested": contenders is not None and Comparison(contenders).column == "test_loss",
        "seeds": 1 if contenders is None else contenders["seed"].nunique(),
        "tables": {name: tables.plain_table(table) for name, table in results.tables.items()},
        "pictures": {n: base64.b64encode(png).decode() for n, png in results.pictures.items()},
        "tokens": format_tokens,
    }


def _shown(runs: pd.DataFrame) -> pd.DataFrame | None:
    """The runs of one batch that compare and whose losses are enough for a curve."""
    same = alike(runs)
    try:
        return None if same.empty else evaluated(same)[0]
    except InputError:
        return None


def _setting(runs: pd.DataFrame) -> str:
    """What runs of one model and one peak rate have in common."""
    first = runs.iloc[0]
    parts = [f"model {first['model']}"] if "model" in runs else []
    if "peak_lr" in runs and first["peak_lr"] == first["peak_lr"]:
        parts.append(f"peak learning rate {peak_text(first['peak_lr'])}")
    return ", ".join(parts)


def _opened(results: Reported) -> dict[str, Fit]:
    """Return the fits whose residuals are shown, by kind."""
    fits, opened = [*results.fits.get("", {}).values()], {}
    if fits and results.points is not None:
        opened["es"] = next((fit for fit in fits if fit.choice != REQUESTED), fits[0])
    if results.curve_fit is not None and results.varied is not None:
        opened["curve"] = results.curve_fit
    if results.table_fit is not None and results.table_fit.status == "converged":
        opened["table"] = results.table_fit
    return opened


def _figures(results: Reported, runs: pd.DataFrame | None) -> dict[str, Figure]:
    """The figures that the results are enough for, by name; those of fits by their group."""
    figures: dict[str, Figure] = {}
    points, fits = results.points, results.fits.get("")
    targets = [] if points is None or not fits else sorted(set(points["target_loss"]))[::-1]
    if results.runs is not None:
        try:
            figures["losses"] = plots.loss_curves(results.runs if runs is None else runs, targets)
        except InputError:
            results.missing["Loss against tokens"] = "no run keeps one batch and has 3 losses"
    if results.varied is not None:
        figures["varied"] = varied_curves(results.varied)
    if points is not None and fits:
        figures["es"] = plots.es_panels(points, fits)
        figures["tokens"] = plots.tokens_to_target(points, fits)
    for group, members in results.fits.items():
        figures[f"batches {group}"] = plots.batch_against_loss(members)
    if results.curve_fit is not None and results.varied is not None:
        figures["fitted"] = fitted_curves(results.curve_fit, results.varied)
    if results.table_fit is not None:
        figures["final"] = table_figure(results.table_fit)
        if results.table_fit.best_rates is not None:
            figures["rates"] = rates_figure(results.table_fit)
    for name, fit in _opened(results).items():
        if not fit.residuals().empty:
            figures[f"residuals {name}"] = residuals_figure(fit)
    if results.schedule is not None:
        plan, decayed = _plans(results.schedule)
        figures["schedule"] = plots.schedule_figure(plan, _law_batch(results), decayed=decayed)
    if results.contenders is not None:
        figures["contenders"] = plots.contenders_figure(results.contenders)
    return figures


def _plans(schedule: dict[str, Any]) -> tuple[Plan, Plan | None]:
    """The derived schedule at constant rate, and with its decay where the results name one."""
    tokens = parse_tokens(schedule["tokens"], field="schedule.json: tokens")
    batch = BatchSchedule.parse(schedule["batch"], total=tokens)
    seq_len, lr, warmup = (schedule[key] for key in ("seq_len", "lr", "warmup"))
    decay = schedule.get("decay", 0)
    if lr is None:
        return resolve(batch, tokens, seq_len), None
    plan = resolve(batch, tokens, seq_len, rate=rates.constant(lr, warmup))
    if not decay:
        return plan, None
    rate = rates.wsd(lr, tokens, warmup, decay)
    return plan, resolve(batch, tokens, seq_len, rate=rate)


def _law_batch(results: Reported):
    """B_opt along the loss trajectory by the law of the schedule, where it has one."""
    fit = results.fits.get("", {}).get((results.schedule or {})["law"])
    try:
        return None if fit is None else optimal_batch(fit)
    except InputError:
        return None


def _symbols(text: str) -> Markup:
    """Text with the indices of B_opt, S_min, ... set below the line."""
    indexed = re.sub(r"\b([BESL])_(\w+)", r"\1<sub>\2</sub>", str(escape(text)))
    return Markup(indexed)
