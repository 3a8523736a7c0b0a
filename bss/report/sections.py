"""The sections of a report: figures, a caption and tables each."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.advice.next_run import described_run, next_runs
from bss.advice.of_fit import fit_advice
from bss.cells import Table, fit_tables
from bss.errors import InputError
from bss.laws import CriticalFit, CurveFit, EsFit, LossFit
from bss.laws.base import Fit, described
from bss.plots.contenders import contenders_figure, difference_text
from bss.plots.critical import critical_figure
from bss.plots.curves import fitted_curves, loss_curves, varied_curves
from bss.plots.final_loss import loss_figure
from bss.plots.fits import fit_figure
from bss.plots.laws import batch_against_loss, es_panels, tokens_to_target
from bss.plots.rates_map import rates_figure
from bss.plots.residuals import residuals_figure
from bss.points.batches import alike, varied
from bss.points.curve import evaluated
from bss.report.results import Results
from bss.rules import Setting
from bss.stats import LR_PHASES, Comparison
from bss.units import format_tokens, rounded_tokens

TITLES = {
    "es": "E(S): tokens and steps to a target loss",
    "critical": "Critical batch sizes",
    "curve": "The law of loss curves",
    "loss": "The law of final losses",
    "own": "A law of a user",
    "equal": "Runs of equal cost",
    "lr": "Best learning rates",
    "branches": "Branches from checkpoints",
}
Figures = dict[str, Figure]


@dataclass(frozen=True)
class Section:
    """A part of a report, whose caption the template has by its title.

    Attributes:
        title: of the section.
        figures: by a label for readers who do not see them.
        tables: below the figures.
        group: of runs, where a results directory has several.
    """

    title: str
    figures: Figures
    tables: Sequence[Table] = ()
    group: str = ""


def answers(results: Results) -> list[str]:
    """Return the first lines: best batch, cost of others, whether growing paid, next run."""
    fits = [fit for group, fit in results.fits if not group]
    lines = [line for fit in fits for line in (fit.answer, _cost(fit))]
    comparison = None if results.contenders is None else Comparison(results.contenders)
    for phase, rows in comparison.by_phase().items() if comparison else ():
        grown = [row for row in rows if row.role in ("schedule", "late", "policy")]
        if grown and any(row.best for row in rows):
            best = min(grown, key=lambda row: row.loss)
            side = "lower" if best.difference < 0 else "higher"
            error = "one seed"
            if best.error is not None:
                error = f"95% CI ± {best.error:.4f}, {best.result}"
            lines.append(
                f"Growing the batch, {LR_PHASES[phase].title}: the final loss of {best.name} is "
                f"{abs(best.difference):.4f} nats {side} than the best fixed batch's ({error})"
            )
    for fit in fits[:1]:
        with suppress(InputError):  # a fit without draws
            lines.append(described_run(next_runs(fit, fit.goal), fit.goal))
    return [line for line in lines if line]


def sections(results: Results) -> list[Section]:
    """Return the sections that the results are enough for."""
    made = [] if results.runs is None else [_losses(results.runs, results.points)]
    for group, fit in results.fits:
        points, runs = (None, None) if group else (results.points, results.runs)
        made.append(Section(TITLES[fit.KIND], _figures(fit, points, runs), fit_tables(fit), group))
    if results.contenders is not None:
        figures = {"Final loss of every schedule": contenders_figure(results.contenders)}
        made.append(Section("Schedules at equal tokens", figures, [*_phases(results.contenders)]))
    return made


def _cost(fit: Any) -> str:
    """Return the excess losses of half and twice the best batch, at the largest budget with one."""
    if isinstance(fit, CurveFit):
        name = f"Best fixed batch at {format_tokens(fit.tokens)} tokens, LR {fit.rates[1]:g}"
        return described(name, fit.best_batch(fit.tokens), "sequences", "law")
    known = fit.summary().rename(columns={"tokens_at_B_opt": "tokens"})
    known = known.dropna(subset=["B_opt", "tokens"]) if "B_opt" in known else known[:0]
    if known.empty:
        return ""
    largest = known.loc[known["tokens"].astype(float).idxmax()]
    setting = Setting(float(largest.get("params", 1.0)), float(largest["tokens"]), 1)
    advice = fit_advice(fit, setting)
    half = advice.loss_at(0.5)
    twice = advice.loss_at(2.0)
    if half is None or twice is None:
        return ""
    at = f"At {rounded_tokens(setting.tokens)} tokens"
    return f"{at}, half of the best batch costs {half:.4f} nats, twice {twice:.4f}"


def _losses(runs: pd.DataFrame, points: pd.DataFrame | None) -> Section:
    """Return the loss curves of comparable runs, and of runs that change batch size or LR."""
    shown = alike(runs)
    changing = varied(runs)
    shown = shown if len(shown) else runs
    with suppress(InputError):  # too few losses for a curve
        shown = evaluated(shown)[0]
    targets = [] if points is None else np.unique(points["target_loss"])[::-1].tolist()
    figures: Figures = {}
    with suppress(InputError):  # no run of one batch size
        figures["Loss against tokens for each batch"] = loss_curves(shown, targets)
    if len(changing):
        figures["Loss and batch size of runs that change them"] = varied_curves(changing)
    return Section("Loss against tokens", figures)


def _figures(fit: Fit, points: pd.DataFrame | None, runs: pd.DataFrame | None) -> Figures:
    """Return the figures of a fit, its residuals last."""
    figures: Figures = {}
    if isinstance(fit, EsFit):
        fits = {fit.law_name: fit}
        if points is not None:
            figures["Tokens against steps to each target"] = es_panels(points, fits)
            figures["Tokens to each target against batch"] = tokens_to_target(points, fits)
        figures["B_opt and B_min against target loss"] = batch_against_loss(fits)
    elif isinstance(fit, LossFit):
        figures["Final loss against batch size"] = loss_figure(fit)
        if fit.best_lrs is not None:
            figures["Best learning rate"] = rates_figure(fit)
    elif isinstance(fit, CurveFit) and runs is not None:
        figures["Measured and fitted loss against tokens"] = fitted_curves(fit, runs)
    elif isinstance(fit, CriticalFit):
        figures["Steps and critical batch sizes"] = critical_figure(fit)
    elif not isinstance(fit, CurveFit):
        figures["Measurements and the law"] = fit_figure(fit)
    with suppress(InputError):  # of a fit that keeps none
        figures["Residuals of the fit"] = residuals_figure(fit)
    return figures


def _phases(contenders: pd.DataFrame) -> Iterator[Table]:
    """Yield a table of the compared schedules per LR phase."""
    comparison = Comparison(contenders)
    columns = ("name", "batch", "tokens", "steps", "eval_loss", comparison.column, "difference")
    unit = {"difference": "difference (10⁻³ nats)"}
    for phase, rows in comparison.by_phase().items():
        records = [
            vars(row) | {"eval_loss": f"{row.eval_loss:.4f}", comparison.column: f"{row.loss:.4f}",
                         "difference": difference_text(row)}
            for row in rows
        ]  # fmt: skip
        strong = [row.role == "schedule" for row in rows]
        yield Table.of_records(LR_PHASES[phase].title, records, columns, strong, unit)
