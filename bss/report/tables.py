"""The tables of a report's page: what results say in rows and cells of text."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bss.cells import Table, estimate, range_text
from bss.laws import CurveFit, EsFit, TableFit
from bss.laws.final_loss.best import TOLERANCES
from bss.plots.contenders import difference_text
from bss.report.findings import peak_text, rounded
from bss.stats import LR_PHASES, ComparedRun, Comparison
from bss.tables import loss_column
from bss.units import format_tokens

MOST_ROWS = 40


def runs_table(runs: pd.DataFrame) -> Table:
    """What was run: a row for each model and sequence length, of how many runs."""
    column = loss_column(runs)
    keys = [key for key in ("model", "params", "seq_len") if key in runs]
    runs = runs.assign(peak_lr=runs.get("peak_lr", np.nan))
    groups = [group for _, group in runs.groupby(keys, dropna=False, sort=False)]
    noun = "held-out" if column == "eval_loss" else "training"
    cells: dict[str, Callable[[pd.DataFrame], str]] = {
        "model": lambda group: str(group.iloc[0].get("model", "all")),
        "N (parameters)": lambda group: number(group.iloc[0].get("params"), ",.0f"),
        "sequence length (tokens)": lambda group: number(group["seq_len"].iloc[0], ",.0f"),
        "runs": lambda group: f"{group['run'].nunique():,}",
        "batch (sequences)": lambda group: _range(group["batch"], "{:,.10g}".format),
        "peak learning rate": lambda group: _range(group["peak_lr"], peak_text),
        "tokens consumed": lambda group: _range(
            group.groupby("run", sort=False)["tokens"].last(),
            lambda count: format_tokens(rounded(count, 3)),
        ),
        f"lowest {noun} loss (nats)": lambda group: number(group[column].min(), ".4f"),
    }
    table = Table.of("", groups[:MOST_ROWS], cells)
    return replace(table, left_out=len(groups) - len(table.rows))


def _range(values: Iterable[float], text: Callable[[float], str]) -> str:
    """The lowest and highest value, and how many there are that differ as text."""
    numbers = np.unique(np.asarray(values, float))
    known = list(dict.fromkeys(text(x) for x in numbers[np.isfinite(numbers)].tolist()))
    if len(known) < 3:
        return ", ".join(known) or "–"
    return f"{known[0]} to {known[-1]} ({len(known)})"


def batch_table(fits: Mapping[str, EsFit]) -> Table:
    """Critical batches of each law at each target loss, highest loss first."""
    ordered = sorted(fits.items(), key=lambda item: "B_opt" not in item[1].law.batches)
    names = [(law, name) for law, fit in ordered for name in reversed(fit.fits[0].batches)]
    losses = sorted({f.target_loss for fit in fits.values() for f in fit.fits})[::-1]
    rows = []
    for loss in losses:
        row = [f"{loss:g}"]
        for law, name in names:
            target = next((f for f in fits[law].fits if f.target_loss == loss), None)
            row.append(estimate(target and target.shown(name), digits=3))
        rows.append(row)
    titles = (f"{name}, {law}" for law, name in names)
    return Table("", ["loss (nats)", *titles], rows)


def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """How well each law predicts left-out batches; the chosen one is strong."""
    cells = {
        "law": lambda e: e["law"],
        "parameters": lambda e: number(e["parameters"], ""),
        "points": lambda e: number(e["points"], ""),
        "rms error in loss (nats)": lambda e: number(e["interior_loss"], ".4f"),
        "rms error in log E": lambda e: number(e["interior_log_E"], ".3f"),
        "the same at the edges": lambda e: number(e["edge_log_E"], ".3f"),
    }
    entries = comparison["table"]
    return Table.of("", entries, cells, [entry["law"] == comparison["winner"] for entry in entries])


def parameter_table(fit: CurveFit) -> Table:
    """The parameters of a law of loss curves, with intervals."""
    rows = [[name, estimate(e, digits=3), e.note] for name, e in fit.parameters.items()]
    return Table("", ["parameter", "value", "note"], rows)


def optima_table(fit: TableFit) -> Table:
    """The best batch at each size and budget, and the batches as good."""
    unit, counted = (fit.seq_len, "sequences") if fit.seq_len else (1, "tokens")
    cells = {
        "N": lambda at: format_tokens(rounded(at.params)),
        "D (tokens)": lambda at: format_tokens(rounded(at.tokens)),
        f"B_opt ({counted})": lambda at: estimate(at.batch, unit, 3),
        "within .005 nats of the best": lambda at: range_text(at.batch.within(TOLERANCES[1]), unit),
    }
    return Table.of("", fit.optima, cells)


def contender_tables(contenders: pd.DataFrame) -> list[Table]:
    """The standings of each ending."""
    cells: dict[str, Callable[[ComparedRun], str]] = {
        "contender": lambda row: row.name,
        "batch": lambda row: row.batch,
        "tokens": lambda row: f"{row.tokens:,}",
        "steps": lambda row: f"{row.steps:,}",
        "held-out loss": lambda row: f"{row.eval_loss:.4f}",
    }
    if Comparison(contenders).column == "test_loss":
        cells["test loss"] = lambda row: f"{row.loss:.4f}"
    cells["difference (10⁻³ nats)"] = difference_text
    return [
        Table.of(LR_PHASES[ending].title, rows, cells, [row.role == "schedule" for row in rows])
        for ending, rows in Comparison(contenders).by_phase().items()
    ]


def plain_table(table: pd.DataFrame) -> Table:
    """The first rows of a table as it is."""
    shown = table.head(MOST_ROWS)
    rows = [[_plain(value) for value in row] for row in shown.astype(object).to_numpy().tolist()]
    return Table("", [str(column) for column in table], rows, left_out=len(table) - len(shown))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    return number(value, ",.0f" if 1e5 <= abs(value) < 1e15 else ",.6g")


def number(value: Any, form: str) -> str:
    """A number as text, a dash where there is none."""
    return "–" if value is None or value != value else format(value, form)
