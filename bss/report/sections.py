"""The sections of a report: a summary table, a figure and a caption each."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bss import plots
from bss.advice.next_run import described_run, next_runs
from bss.advice.of_fit import fit_advice
from bss.cells import Table
from bss.errors import InputError
from bss.laws import CurveFit, EsFit, TableFit
from bss.laws.base import Fit, described
from bss.laws.step_time import StepTime, best_batches
from bss.plots.contenders import difference_text
from bss.plots.curves import fitted_curves, varied_curves
from bss.plots.final_loss import table_figure
from bss.plots.rates_map import rates_figure
from bss.plots.residuals import residuals_figure
from bss.plots.step_time import time_figure
from bss.points.batches import alike
from bss.points.curve import evaluated, loss_column
from bss.report.results import Results
from bss.rules import Setting
from bss.stats import LR_PHASES, Comparison
from bss.units import format_tokens

MOST_ROWS = 40


@dataclass(frozen=True)
class Section:
    """A part of a report, whose caption the template has by its title.

    Attributes:
        title: of the section.
        figures: each with a label for readers who do not see it.
        tables: below the figures.
        group: of runs, where a results directory has several.
    """

    title: str
    figures: Sequence[tuple[str, Figure]] = ()
    tables: Sequence[Table] = ()
    group: str = ""


def answers(results: Results) -> list[str]:
    """Return the first lines: best batch, cost of others, whether growing paid, next run."""
    lines: list[str] = []
    for fit in _fits(results):
        lines += [fit.answer, _best_constant(fit) if isinstance(fit, CurveFit) else _cost(fit)]
    if results.contenders is not None:
        comparison = Comparison(results.contenders)
        for phase, rows in comparison.by_phase().items():
            grown = [row for row in rows if row.role in ("schedule", "late", "policy")]
            if grown and any(row.best for row in rows):
                best = min(grown, key=lambda row: row.loss)
                side = "lower" if best.difference < 0 else "higher"
                lines.append(
                    f"Growing the batch, {LR_PHASES[phase].title}: {best.name} ends "
                    f"{abs(best.difference):.4f} nats {side} than the best fixed batch "
                    f"({_certainty(best)})"
                )
    for fit in _fits(results)[:1]:
        with suppress(InputError):  # a fit without draws
            goal = fit.goal
            lines.append(described_run(next_runs(fit, goal), goal))
    return [line for line in lines if line]


def sections(results: Results) -> list[Section]:
    """Return the sections that the results are enough for."""
    makers = {"runs": (_runs, _losses), "varied": (_varied,), "fits": (_es,),
              "step_time": (_time,), "curve_fit": (_curve,), "table_fit": (_final,),
              "contenders": (_contenders,)}  # fmt: skip
    made: list[Section] = []
    for name, functions in makers.items():
        for make in functions if (value := getattr(results, name)) is not None else ():
            with suppress(InputError):
                made += make(value, results)
    return made


def _fits(results: Results) -> list[EsFit | CurveFit | TableFit]:
    fits = (results.chosen_es, results.curve_fit, results.table_fit)
    return [fit for fit in fits if fit is not None]


def _cost(fit: EsFit | TableFit) -> str:
    """Return the excess losses of half and twice the best batch, at the largest budget with one."""
    known = fit.summary().rename(columns={"tokens_at_B_opt": "tokens"})
    known = known.dropna(subset=["B_opt", "tokens"])
    if known.empty:
        return ""
    largest = known.loc[known["tokens"].astype(float).idxmax()]
    setting = Setting(float(largest.get("params", 1.0)), float(largest["tokens"]), 1)
    advice = fit_advice(fit, setting, "cosine")
    half, twice = advice.loss_at(0.5), advice.loss_at(2.0)
    if half is None or twice is None:
        return ""
    at = f"At {format_tokens(round(setting.tokens))} tokens"
    return f"{at}, half of the best batch costs {half:.4f} nats, twice {twice:.4f}"


def _best_constant(fit: CurveFit) -> str:
    """Return the best fixed batch at the longest budget and the largest LR measured."""
    name = f"Best fixed batch at {format_tokens(fit.tokens)} tokens, LR {fit.rates[1]:g}"
    return described(name, fit.best_batch(fit.tokens), "sequences", "law")


def _certainty(row: Any) -> str:
    return "one seed" if row.error is None else f"95% CI ± {row.error:.4f}, {row.result}"


def _runs(runs: pd.DataFrame, _: Results) -> Iterator[Section]:
    """A row per model and sequence length, with the ranges of its runs at their ends."""
    column = loss_column(runs)
    last = runs.groupby("run", sort=False).tail(1)
    last = last if "model" in last else last.assign(model="all")
    shown: dict[str, Any] = {"runs": ("run", "nunique")}
    for name in ("batch", "peak_lr", "tokens"):
        if name in runs:
            shown |= {f"smallest {name}": (name, "min"), f"largest {name}": (name, "max")}
    shown[f"lowest {column}"] = (column, "min")
    keys = [key for key in ("model", "params", "seq_len") if key in last]
    frame = last.groupby(keys, dropna=False, sort=False).agg(**shown).reset_index()
    yield Section("Runs", tables=[_first_rows(frame)])


def _losses(runs: pd.DataFrame, results: Results) -> Iterator[Section]:
    shown, points = alike(runs), results.points
    try:
        shown = evaluated(shown)[0] if len(shown) else runs
    except InputError:  # too few losses for a curve
        shown = runs
    targets = [] if points is None else sorted(set(points["target_loss"]))[::-1]
    chart = plots.loss_curves(shown, targets)
    yield Section("Loss against tokens", [("Loss against tokens for each batch", chart)])


def _varied(runs: pd.DataFrame, _: Results) -> Iterator[Section]:
    figure = ("Loss and batch size of runs that change them", varied_curves(runs))
    yield Section("Runs with a varying batch size or learning rate", [figure])


def _es(groups: dict[str, dict[str, EsFit]], results: Results) -> Iterator[Section]:
    points, chosen = results.points, results.chosen_es
    for group, fits in groups.items():
        figures = [("B_opt and B_min against target loss", plots.batch_against_loss(fits))]
        if points is not None and not group:
            figures[:0] = [
                ("Tokens against steps to each target", plots.es_panels(points, fits)),
                ("Tokens to each target against batch", plots.tokens_to_target(points, fits)),
            ]
        figures += [] if group else _residuals(chosen)
        tables = [Table.of_frame(f"{name} law", fit.summary()) for name, fit in fits.items()]
        compared = [fit.details() for fit in fits.values() if fit.comparison][:1]
        tables += [Table.of_frame(*one) for details in compared for one in details.items()]
        yield Section("E(S): tokens and steps to a target loss", figures, tables, group)


def _time(step_time: StepTime, results: Results) -> Iterator[Section]:
    """The batch sizes with the fewest tokens, least time and least cost to each target."""
    if (fit := results.chosen_es) is None:
        return
    chart = ("Tokens, time and cost against batch size", time_figure(fit, step_time))
    tables = [
        Table.of_frame(
            f"to loss {at.target_loss:.4g}", best_batches(fit, at.target_loss, step_time)
        )
        for at in fit.fits
    ]
    yield Section("Time and cost to a target loss", [chart], tables)


def _residuals(fit: Fit | None) -> list[tuple[str, Figure]]:
    """The figure of a fit's residuals; none of a fit that keeps none."""
    with suppress(InputError):
        return [("Residuals of the fit", residuals_figure(fit))] if fit is not None else []
    return []


def _curve(fit: CurveFit, results: Results) -> Iterator[Section]:
    figures = []
    if results.varied is not None:
        chart = fitted_curves(fit, results.varied)
        figures = [("Measured and fitted loss against tokens", chart), *_residuals(fit)]
    yield Section("The law of loss curves", figures, [_summary(fit)])


def _final(fit: TableFit, _: Results) -> Iterator[Section]:
    figures = [("Final loss against batch size", table_figure(fit))]
    if fit.best_lrs is not None:
        figures.append(("Best learning rate", rates_figure(fit)))
    if fit.status == "converged":
        figures += _residuals(fit)
    yield Section("The law of final losses", figures, [_summary(fit)])


def _summary(fit: Fit) -> Table:
    return Table.of_frame(f"{fit.level:.0%} intervals", fit.summary())


def _contenders(table: pd.DataFrame, _: Results) -> Iterator[Section]:
    comparison = Comparison(table)
    names = ("name", "batch", "tokens", "steps", "eval_loss", comparison.column)
    columns = {name: name.replace("_", " ") for name in names}
    columns |= {"difference": "difference (10⁻³ nats)"}
    tables = [
        Table.of_records(
            LR_PHASES[phase].title,
            [vars(row) | {"eval_loss": f"{row.eval_loss:.4f}", comparison.column: f"{row.loss:.4f}",
                          "difference": difference_text(row)} for row in rows],
            columns,
            [row.role == "schedule" for row in rows],
        )
        for phase, rows in comparison.by_phase().items()
    ]  # fmt: skip
    figure = ("Final loss of every schedule", plots.contenders_figure(table))
    yield Section("Schedules at equal tokens", [figure], tables)


def _first_rows(frame: pd.DataFrame) -> Table:
    title = f"the first {MOST_ROWS} of {len(frame):,} rows" if len(frame) > MOST_ROWS else ""
    return Table.of_frame(title, frame.head(MOST_ROWS))
