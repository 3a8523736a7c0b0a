"""The sections of a report: a summary table, a figure and a caption each."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss import plots
from bss.advice.next_run import default_goal, described_run, next_runs
from bss.cells import Table
from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.base import Fit
from bss.plots.contenders import difference_text
from bss.plots.curves import fitted_curves, varied_curves
from bss.plots.final_loss import table_figure
from bss.plots.rates_map import rates_figure
from bss.plots.residuals import residuals_figure
from bss.points.batches import alike
from bss.points.curve import evaluated
from bss.report.results import Results
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.stats import LR_PHASES, Comparison
from bss.tables import loss_column
from bss.units import parse_tokens, rounded_tokens

MOST_ROWS = 40


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: of the section.
        caption: what the figures and tables show.
        figures: each with a label for readers who do not see it.
        tables: below the figures.
        code: a text to copy.
    """

    title: str
    caption: str
    figures: Sequence[tuple[str, Figure]] = ()
    tables: Sequence[Table] = ()
    code: str = ""


def answers(results: Results) -> list[str]:
    """Return the first lines: best batch, cost of others, whether growing paid, next run."""
    lines = [fit.answer for fit in _fits(results)]
    chosen = results.chosen_es
    if chosen is not None:
        lines += _cost_of_others(chosen)
    if results.contenders is not None:
        comparison = Comparison(results.contenders)
        for phase, rows in comparison.by_phase().items():
            grown = [row for row in rows if row.role in ("schedule", "late", "policy")]
            if grown and any(row.best for row in rows):
                best = min(grown, key=lambda row: row.loss)
                side = "lower" if best.difference < 0 else "higher"
                lines.append(
                    f"Growing the batch, {LR_PHASES[phase].title}: {best.name} ends "
                    f"{abs(best.difference):.4f} nats {side} than the best constant batch "
                    f"({_certainty(best)})"
                )
    for fit in _fits(results)[:1]:
        with suppress(InputError):  # a fit without draws
            goal = default_goal(fit)
            lines.append(described_run(next_runs(fit, goal), goal))
    return lines


def sections(results: Results) -> list[Section]:
    """Return the sections that the results are enough for."""
    made: list[Section] = []
    for make in (_runs, _losses, _varied, _es, _curve, _final, _schedule, _contenders):
        with suppress(InputError):
            made += make(results)
    made += [
        Section(name, "", tables=[_first_rows(table)]) for name, table in results.tables.items()
    ]
    return made


def _fits(results: Results) -> list[Fit]:
    fits = (results.chosen_es, results.curve_fit, results.table_fit)
    return [fit for fit in fits if fit is not None]


def _cost_of_others(fit: EsFit) -> list[str]:
    """Tokens to the lowest target with an optimum at half and at twice the best batch."""
    known = fit.summary().dropna(subset=["B_opt"])
    if known.empty:
        return []
    target, best = known.iloc[-1][["target_loss", "B_opt"]].astype(float)
    others = pd.DataFrame({"batch": [best / 2, best, 2 * best], "target_loss": target})
    try:
        tokens = fit.predict(others)["tokens"].to_numpy(float)
    except InputError:  # B_opt is the measured minimum of a law that is not identified
        return []
    half, twice = tokens[[0, 2]] / tokens[1] - 1
    return [f"At loss {target:g}, half of B_opt takes {half:.1%} more tokens, twice {twice:.1%}"]


def _certainty(row: Any) -> str:
    return "one seed" if row.error is None else f"95% CI ± {row.error:.4f}, {row.result}"


def _runs(results: Results) -> Iterator[Section]:
    if results.runs is None:
        return
    runs, column = results.runs, loss_column(results.runs)
    keys = [key for key in ("model", "params", "seq_len") if key in runs]
    groups = [group for _, group in runs.groupby(keys, dropna=False, sort=False)]
    noun = "held-out" if column == "eval_loss" else "training"
    rows = [
        {
            "model": str(group.iloc[0].get("model", "all")),
            "parameters": group["params"].iloc[0] if "params" in group else None,
            "sequence length (tokens)": group["seq_len"].iloc[0],
            "runs": group["run"].nunique(),
            "batch (sequences)": _span(group["batch"]),
            "peak learning rate": _span(group["peak_lr"]) if "peak_lr" in group else None,
            "tokens": _span(
                pd.Series(group.groupby("run", sort=False)["tokens"].last()), tokens=True
            ),
            f"lowest {noun} loss (nats)": f"{group[column].min():.4f}",
        }
        for group in groups[:MOST_ROWS]
    ]
    caption = "One row per model and sequence length; in brackets the number of distinct values."
    yield Section("Runs", caption, tables=[Table.of_records("models", rows)])


def _losses(results: Results) -> Iterator[Section]:
    if results.runs is None:
        return
    shown = _constant(results.runs)
    points = results.points
    targets = [] if points is None else sorted(set(points["target_loss"]))[::-1]
    chart = plots.loss_curves(results.runs if shown is None else shown, targets)
    caption = (
        "Top: loss as measured; markers show where the monotone fit to a run first reaches a "
        "target. Bottom: excess loss over the best batch at equal tokens; where the best batch "
        "changes, the curves cross."
    )
    label = "Loss against tokens for each batch"
    yield Section("Loss against tokens", caption, [(label, chart)])


def _varied(results: Results) -> Iterator[Section]:
    if results.varied is None:
        return
    caption = "Top: loss as measured. Bottom: batch size of each run. Learning rates in brackets."
    figure = ("Loss and batch size of runs that change them", varied_curves(results.varied))
    yield Section("Runs with a varying batch size or learning rate", caption, [figure])


def _es(results: Results) -> Iterator[Section]:
    points = results.points
    for group, fits in results.fits.items():
        named = f" ({group})" if group else ""
        figures = []
        if points is not None and not group:
            figures += [
                ("Tokens against steps to each target", plots.es_panels(points, fits)),
                ("Tokens to each target against batch", plots.tokens_to_target(points, fits)),
            ]
        figures.append(("B_opt and B_min against target loss", plots.batch_against_loss(fits)))
        chosen = results.chosen_es
        if not group and chosen is not None:
            with suppress(InputError):
                figures.append(("Residuals of the fit", residuals_figure(chosen)))
        tables = [Table.of_frame(f"{name} law", fit.summary()) for name, fit in fits.items()]
        if group in results.comparisons:
            tables.append(_comparison(results.comparisons[group]))
        level = next(iter(fits.values())).level
        caption = (
            f"E(S): tokens E and optimizer steps S to reach a target loss, batch B = E/S "
            f"(sequences), {level:.0%} intervals. Arrows mark runs that did not reach the target. "
            "B_opt needs the fewest tokens; a batch below B_min never reaches the target. Laws "
            "follow arXiv 2601.05034 (three stages), arXiv 1812.06162 (hyperbola), or are derived "
            "here (surfaces). A fit belongs to the learning rates of its runs."
        )
        yield Section(f"E(S): tokens and steps to a target loss{named}", caption, figures, tables)


def _comparison(entry: dict[str, Any]) -> Table:
    """Errors of the laws at batch sizes left out in turn."""
    columns = {"law": "law", "parameters": "parameters", "interior_log_E": "CV error (log tokens)",
               "edge_log_E": "CV error at the smallest and largest batch"}  # fmt: skip
    frame = pd.DataFrame(entry["table"], columns=[*columns])
    strong = (frame["law"] == entry["winner"]).tolist()
    return Table.of_frame("Cross-validation", frame.rename(columns=columns), strong)


def _curve(results: Results) -> Iterator[Section]:
    fit = results.curve_fit
    if fit is None:
        return
    figures = []
    if results.varied is not None:
        chart = fitted_curves(fit, results.varied)
        figures.append(("Measured and fitted loss against tokens", chart))
        with suppress(InputError):
            figures.append(("Residuals of the fit", residuals_figure(fit)))
    caption = (
        f"Functional scaling law (arXiv 2509.19189) fitted to {fit.losses} losses of {fit.runs} "
        f"runs; {fit.level:.0%} intervals. Bottom: measured minus fitted loss."
    )
    table = Table.of_frame("parameters", fit.summary())
    yield Section("The law of loss curves", caption, figures, [table])


def _final(results: Results) -> Iterator[Section]:
    fit = results.table_fit
    if fit is None:
        return
    figures = [("Final loss against batch size", table_figure(fit))]
    if fit.best_lrs is not None:
        figures.append(("Best learning rate", rates_figure(fit)))
    if fit.status == "converged":
        figures.append(("Residuals of the fit", residuals_figure(fit)))
    caption = (
        "Final loss against batch size at each model size N and token budget D: measured (marks) "
        "and fitted (lines). Bars span the batch sizes within .003 nats of the best."
    )
    table = Table.of_frame(f"best batch sizes, {fit.level:.0%} intervals", fit.summary())
    yield Section("The law of final losses", caption, figures, [table])


def _schedule(results: Results) -> Iterator[Section]:
    entry = results.schedule
    if entry is None:
        return
    plan, decayed = _plans(entry)
    chart = plots.schedule_figure(plan, decayed=decayed)
    caption = (
        f"Derived from the {entry['law']} law: {plan.steps:,} steps over {plan.tokens:,} tokens. "
        f"{entry['note']}"
    )
    label = "Batch size and learning rate against tokens"
    yield Section("The schedule", caption, [(label, chart)], code=f'--batch "{entry["batch"]}"')


def _contenders(results: Results) -> Iterator[Section]:
    if results.contenders is None:
        return
    comparison = Comparison(results.contenders)
    columns = ("name", "batch", "tokens", "steps", "eval_loss", comparison.column)
    columns = {name: name.replace("_", " ") for name in columns}
    columns |= {"name": "schedule", "eval_loss": "held-out loss"}
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
    caption = (
        "Final losses at equal tokens and equal data order. Differences are to the best constant "
        "batch, which is chosen by held-out loss; with several seeds they are paired by seed, "
        "with 95% confidence intervals (paired t, Holm)."
    )
    figure = ("Final loss of every schedule", plots.contenders_figure(results.contenders))
    yield Section("Schedules at equal tokens", caption, [figure], tables)


def _constant(runs: pd.DataFrame) -> pd.DataFrame | None:
    """The runs of one batch size that compare and have enough losses for a curve."""
    same = alike(runs)
    try:
        return None if same.empty else evaluated(same)[0]
    except InputError:
        return None


def _plans(entry: dict[str, Any]) -> tuple[Plan, Plan | None]:
    """The schedule at constant learning rate, and with its decay where it has one."""
    tokens = parse_tokens(entry["tokens"], field="schedule.json: tokens")
    batch = BatchSchedule.parse(entry["batch"], total=tokens)
    seq_len, lr, warmup = (entry[key] for key in ("seq_len", "lr", "warmup"))
    decay = entry.get("decay", 0)
    if lr is None:
        return resolve(batch, tokens, seq_len), None
    plan = resolve(batch, tokens, seq_len, rate=rates.constant(lr, warmup))
    if not decay:
        return plan, None
    return plan, resolve(batch, tokens, seq_len, rate=rates.wsd(lr, tokens, warmup, decay))


def _span(values: pd.Series, *, tokens: bool = False) -> str:
    """The lowest and highest value, and how many distinct ones there are."""
    known = np.unique(values.to_numpy(float)[np.isfinite(values.to_numpy(float))]).tolist()
    write = (lambda x: str(rounded_tokens(x))) if tokens else (lambda x: f"{x:,.4g}")
    texts = list(dict.fromkeys(write(x) for x in known))
    if len(texts) < 3:
        return ", ".join(texts) or "–"
    return f"{texts[0]} to {texts[-1]} ({len(texts)})"


def _first_rows(frame: pd.DataFrame) -> Table:
    count = f"the first {MOST_ROWS} of {len(frame):,}" if len(frame) > MOST_ROWS else len(frame)
    title = f"{count} rows"
    return Table.of_frame(title, frame.head(MOST_ROWS))
