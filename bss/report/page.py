"""Writes the report of an experiment: one HTML file with inline SVG, no script, no network."""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from bss import plots
from bss.errors import InputError
from bss.plots.contenders import RATES
from bss.plots.style import svg
from bss.points.standings import compared_loss, standings
from bss.policies.recommend import optimal_batch
from bss.report.findings import interval_text, millinats, short_answer
from bss.report.results import Results, read_results
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.units import format_tokens, parse_tokens

TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Table:
    """A table of the page: the first column is text, the others are numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: Sequence[bool] = ()


def write_report(results: Path, file: Path) -> None:
    """Write the report of an experiment, whole or not at all.

    Args:
        results: directory with experiment.json, runs.parquet, points.csv, fits.json,
            comparison.json, schedule.json, contenders.csv and throughput.csv.
        file: the HTML file.

    Raises:
        InputError: a file of the results is missing or damaged, or the page cannot be written.
    """
    read = read_results(Path(results))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["symbols"] = _symbols
    page = environment.get_template(TEMPLATE).render(_content(read))
    write_page(Path(file), page)


def _content(results: Results) -> dict[str, Any]:
    """Everything the template shows."""
    plan, decayed = _plans(results.schedule)
    fits, points = results.fits, results.points
    first_rows = results.throughput.drop_duplicates("run")
    targets = sorted(set(points["target_loss"]), reverse=True)
    figures = {
        "losses": plots.loss_curves(results.runs, targets),
        "es": plots.es_panels(points, fits),
        "tokens": plots.tokens_to_target(points, fits),
        "batches": plots.batch_against_loss(fits),
        "schedule": plots.schedule_figure(plan, _law_batch(results), decayed=decayed),
        "contenders": plots.contenders_figure(results.contenders),
        "throughput": plots.throughput_figure(results.throughput),
    }
    return {
        "experiment": results.experiment,
        "answers": short_answer(results),
        "figures": {name: _inline(figure) for name, figure in figures.items()},
        "batches": _batch_table(results),
        "warnings": sorted({w for fit in fits.values() for w in fit.warnings}),
        "intervals": next(iter(fits.values()), None),
        "comparison": _comparison_table(results.comparison),
        "left_out": results.comparison["left_out"],
        "winner": results.comparison["winner"],
        "schedule": results.schedule,
        "plan": plan,
        "contenders": {
            told: _contender_table(results, rate)
            for rate, told in RATES.items()
            if standings(results.contenders, rate)
        },
        "compared": {"test_loss": "test", "eval_loss": "held-out"}[
            compared_loss(results.contenders)
        ],
        "throughput": _throughput_table(results),
        "recompilations": int(first_rows["recompilations"].to_numpy().sum()),
        "runs": len(set(results.contenders["run"])),
        "tokens": format_tokens,
        "measured": _measured_facts(results),
    }


def _plans(schedule: dict[str, Any]) -> tuple[Plan, Plan | None]:
    """The derived schedule at constant rate, and with its decay where the results name one."""
    tokens = parse_tokens(schedule["tokens"], field="schedule.json: tokens")
    batch = BatchSchedule.parse(schedule["batch"], total=tokens)
    seq_len, lr, warmup = (schedule[key] for key in ("seq_len", "lr", "warmup"))
    plan = resolve(batch, tokens, seq_len, rate=rates.constant(lr, warmup))
    decay = schedule.get("decay", 0)
    if not decay:
        return plan, None
    rate = rates.wsd(lr, tokens, warmup, decay)
    return plan, resolve(batch, tokens, seq_len, rate=rate)


def _law_batch(results: Results):
    """B_opt along the loss trajectory by the law of the schedule, where it has one."""
    fit = results.fits.get(results.schedule["law"])
    try:
        return None if fit is None else optimal_batch(fit)
    except InputError:
        return None


def _measured_facts(results: Results) -> dict[str, Any]:
    """What the tables alone can say of the set-up."""
    first = results.runs.iloc[0].to_dict()
    return {
        "batches": sorted({int(batch) for batch in results.runs["batch"]}),
        "seeds": len(set(results.contenders["seed"])),
        "points": len(results.points),
        "reached": int(results.points["reached"].to_numpy(bool).sum()),
        "seq_len": first["seq_len"],
        "model": first.get("model", ""),
        "params": int(first.get("params", 0)),
    }


def _batch_table(results: Results) -> Table:
    laws = {law: fit for law, fit in results.fits.items() if fit.law != "hyperbola"}
    names = [(law, name) for law in laws for name in ("B_opt", "B_min")]
    hyperbolas = [(law, "B_crit") for law, fit in results.fits.items() if fit.law == "hyperbola"]
    names += hyperbolas
    losses = sorted({f.target_loss for fit in results.fits.values() for f in fit.fits})[::-1]
    rows = []
    for loss in losses:
        row = [f"{loss:g}"]
        for law, name in names:
            found = next((f for f in results.fits[law].fits if f.target_loss == loss), None)
            good = found is not None and found.status == "converged" and name in found.batches
            row.append(interval_text(found.batches[name]) if found and good else "–")
        rows.append(row)
    return Table(["loss (nats)", *(f"{name}, {law}" for law, name in names)], rows)


def _comparison_table(comparison: dict[str, Any]) -> Table:
    columns = [
        "law", "parameters", "points", "rms error in loss (nats)", "rms error in log E",
        "the same at the edges",
    ]  # fmt: skip
    rows = [
        [
            entry["law"],
            f"{entry['parameters']}",
            f"{entry['points']}",
            *(_number(entry[key], ".4f") for key in ("interior_loss",)),
            *(_number(entry[key], ".3f") for key in ("interior_log_E", "edge_log_E")),
        ]
        for entry in comparison["table"]
    ]
    return Table(columns, rows, [e["law"] == comparison["winner"] for e in comparison["table"]])


def _contender_table(results: Results, rate: str) -> Table:
    rows = standings(results.contenders, rate)
    tested = compared_loss(results.contenders) == "test_loss"
    columns = ["contender", "batch", "tokens", "steps", "held-out loss"]
    columns += ["test loss"] * tested + ["difference (10⁻³ nats)"]
    cells = [
        [
            row.name,
            row.batch,
            f"{row.tokens:,}",
            f"{row.steps:,}",
            f"{row.eval_loss:.4f}",
            *[f"{row.loss:.4f}"] * tested,
            "best constant" if row.best else millinats(row.difference, row.error),
        ]
        for row in rows
    ]
    return Table(columns, cells, [row.role == "schedule" for row in rows])


def _throughput_table(results: Results) -> Table:
    """A row per contender's run, its batches side by side."""
    rows = []
    for _, run in results.throughput.groupby("run", sort=False):
        speeds = zip(run["batch"], run["tokens_per_second"], strict=True)
        use = [_number(share, ".1%") for share in run["mfu"] if np.isfinite(share)]
        first = run.iloc[0]
        rows.append(
            [
                str(first["name"]),
                f"{run['tokens'].to_numpy().sum():,.0f}",
                ", ".join(f"{batch:g}: {speed:,.0f}" for batch, speed in speeds),
                ", ".join(use) or "–",
                f"{first['programs']:g}",
                f"{first['recompilations']:g}",
            ]
        )
    columns = [
        "run", "tokens trained", "batch: tokens per second", "model FLOP utilisation", "programs",
        "recompilations",
    ]  # fmt: skip
    return Table(columns, rows)


def _symbols(text: str) -> Markup:
    """Text with the indices of B_opt, S_min, ... set below the line."""
    indexed = re.sub(r"\b([BESL])_(\w+)", r"\1<sub>\2</sub>", str(escape(text)))
    return Markup(indexed)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None or value != value else format(value, form)


def _inline(figure: Figure) -> Markup:
    return Markup(svg(figure))


def write_page(file: Path, page: str) -> None:
    """Write a page, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(page)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"report: {file} cannot be written: {error.strerror}") from None
