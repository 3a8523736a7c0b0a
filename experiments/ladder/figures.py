"""Figures of the size series: what was predicted of each rung, and what was measured."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.laws import CriticalFit
from bss.plots import style
from bss.plots.critical import curve_handles, draw_steps
from bss.units import format_tokens, rounded_tokens
from experiments.ladder.analysis import (
    COST,
    NOTE,
    RISE,
    bend,
    by_rate,
    dense_of_mixture,
    least,
    transfers,
)

LABEL = "batch (sequences of 256 tokens)"
PREDICTED = {"color": style.FAINT, "linestyle": "--", "marker": "D"}
FIRST = {"color": "#10375c", "linestyle": "-", "marker": "o"}
SECOND = {"color": "#c2571a", "linestyle": "--", "marker": "s"}
CRITICAL = {"color": "#2f7d4f", "linestyle": "-.", "marker": "^"}


def losses_figure(found: pd.DataFrame, stepwise: pd.DataFrame) -> Figure:
    """Draw decayed losses against batch size, with preregistered and stepwise 90% intervals.

    One row per rung, one panel per token budget.

    Args:
        found: The table losses.csv.
        stepwise: The table stepwise.csv.
    """
    rungs = list(found.groupby("rung", sort=False))
    figure, axes = style.new_figure(2.5 * len(rungs), len(rungs), 2, 9.8, sharey="row")
    ends = ["batch", "predicted", "low", "high"]
    for row, (rung, some) in zip(axes, rungs, strict=True):
        for ax, (stop, at) in zip(row, some.groupby("token_budget"), strict=False):
            x, *predicted = style.columns(at, *ends)
            style.bars(ax, (x * 0.95, *predicted), PREDICTED)
            x, *below = style.columns(stepwise.loc[stepwise["token_budget"] == stop], *ends)
            style.bars(ax, (x * 1.05, *below), SECOND)
            ax.plot(*style.columns(at, "batch", "measured"), lw=1.4, ms=5, zorder=5, **FIRST)
            style.batch_axis(ax.xaxis, found["batch"].unique(), most=7)
            title = f"{rung}, {format_tokens(int(str(stop)))} tokens"
            style.panel_title(ax, title, xlabel=LABEL)
        row[0].set_ylabel("test loss after a decay\n(nats per token)")
    looks = {
        "measured": FIRST,
        "preregistered, 90%,\nfrom 12k to 49k": PREDICTED,
        "from all rungs\nbelow it, 90%": SECOND,
    }
    return style.side_legend(figure, style.handles(looks))


def rates_figure(table: pd.DataFrame) -> Figure:
    """Plot the decayed loss minus its minimum over LRs; one row per transfer, one column per batch.

    Args:
        table: Table of `analysis.finished`.
    """
    cells = {(name, batch): pair for name, batch, *pair in transfers(table)}
    names = list(dict.fromkeys(name for name, _ in cells))
    batches = list(dict.fromkeys(batch for _, batch in cells))
    figure, axes = style.new_figure(
        2.5 * len(names), len(names), len(batches), 10.4, sharey="row", sharex="col"
    )
    for row, name in zip(axes, names, strict=True):
        for ax, batch in zip(row, batches, strict=True):
            for look, some in zip((FIRST, SECOND), cells[name, batch], strict=True):
                losses = by_rate(some)
                ax.plot(losses.index, losses - losses.min(), ms=5, lw=1.4, **look)
            ax.axhline(COST, color=style.INK, lw=0.8, ls=":")
            ax.set_xscale("log", base=2)
            rates = cells[name, batch][0]["peak_lr"].unique()
            ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
            ax.minorticks_off()
            style.panel_title(ax, f"batch {batch}")
        row[0].set_ylabel(f"{name}\nabove the best LR (nats)")
    for ax in axes[-1]:
        ax.set_xlabel("peak LR")
    entries = style.handles({"smaller model": FIRST, "larger model": SECOND})
    mark = style.handle(f"{COST:g} nats", color=style.INK, lw=0.8, ls=":")
    return style.side_legend(figure, [*entries, mark])


def bends_figure(table: pd.DataFrame) -> Figure:
    """Draw decayed loss above the minimum against batch size: two widths; mixture and dense.

    A vertical line marks the batch size at which a line is RISE above.
    """
    figure, ((left, right),) = style.new_figure(3.4, 1, 2, 9.8, sharey=True)
    widths = table.loc[table["part"] == "width"].groupby("params")
    sides = {
        left: {f"{params:,} parameters": some for params, some in widths},
        right: {
            "dense": dense_of_mixture(table),
            "mixture, 2 of 8": table.loc[table["part"] == "mixture"],
        },
    }
    for ax, lines in sides.items():
        ax.axhline(RISE, color=style.INK, lw=0.8, ls=":")
        for look, (name, some) in zip((FIRST, SECOND), lines.items(), strict=False):
            if some.empty:
                continue
            losses = least(some)
            ax.plot(losses.index, losses - losses.min(), ms=5, lw=1.4, label=name, **look)
            ax.axvline(bend(some), lw=0.8, **{**look, "marker": ""})
        style.batch_axis(ax.xaxis, least(table).index)
        ax.legend(frameon=False, fontsize=8)
        ax.set(xlabel=LABEL)
    left.set_ylabel("test loss above the minimum (nats per token)")
    style.panel_title(left, "width alone", "each at its best LR")
    style.panel_title(right, "experts, .4M active", "at equal LRs")
    return figure


def critical_figure(fit: CriticalFit) -> Figure:
    """Draw steps to each target against batch size, and the critical batch size against D."""
    figure, ((left, right),) = style.new_figure(3.8, 1, 2, 10.4)
    draw_steps(left, fit)
    models = list(dict.fromkeys(at.curve.model for at in fit.fits))
    looks = style.named_styles(models)
    for model, look in looks.items():
        own = [at for at in fit.fits if at.curve.model == model]
        batches = [(at.cbs.value, at.cbs.low, at.cbs.high) for at in own]
        tokens = np.array([at.curve.tokens for at in own])
        style.bars(right, (tokens, *np.array(batches, float).T), look)
    right.set(xscale="log")
    style.batch_axis(right.yaxis)
    style.tokens_axis(right.xaxis, most=5)
    right.set(xlabel="tokens D of batch 1", ylabel="critical batch (sequences)")
    style.panel_title(right, "by data and model", f"{fit.level:.0%}")
    entries = curve_handles(fit)
    for entry, at in zip(entries, fit.fits, strict=False):
        entry.set_label(f"{at.curve.model}, D = {rounded_tokens(at.curve.tokens)}")
    return style.side_legend(figure, [*entries, *style.handles(looks, "right: {}")])


def best_figure(scores: pd.DataFrame, critical: pd.DataFrame) -> Figure:
    """Draw best batch sizes of each rung and exponents of N and D, predicted and measured.

    Args:
        scores: The table scores.csv.
        critical: The table laws.csv, exponents of critical batch sizes.
    """
    figure, (axes,) = style.new_figure(4.2, 1, 2, 10.4, width_ratios=(3, 2))
    ends = ["measured", "measured_low", "measured_high"]
    for ax, question in zip(axes, ("batches", "exponents"), strict=True):
        rows = scores.loc[scores["question"] == question].set_index("of")
        short = scores.loc[scores["question"] == question + NOTE].set_index("of")
        _spans(ax, rows[["said", "low", "high"]], -0.24, PREDICTED)
        _spans(ax, rows[ends], -0.08, FIRST)
        _spans(ax, short.reindex(rows.index)[ends], 0.08, SECOND)
        ax.set(yticks=range(len(rows)), yticklabels=rows.index, ylim=(len(rows) - 0.5, -0.5))
    laws = critical.set_index("variable").reindex(["params", "tokens"])
    _spans(axes[1], laws[["exponent", "low", "high"]], 0.24, CRITICAL)
    axes[0].set_xscale("log")
    style.tokens_axis(axes[0].xaxis, most=5)
    style.panel_title(axes[0], "best batch", "an arrow: this side of it", xlabel="tokens")
    axes[1].axvline(0, color=style.INK, lw=0.8)
    style.panel_title(axes[1], "its exponents", xlabel="in N and D")
    looks = {
        "preregistered, 90%": PREDICTED,
        "sequences of 256": FIRST,
        "sequences of 64": SECOND,
        "critical batches": CRITICAL,
    }
    return style.side_legend(figure, style.handles(looks))


def _spans(ax: Axes, rows: Any, above: float, look: style.Look) -> None:
    """Draw values with their intervals, one line each; a bound is an arrow."""
    mark: dict[str, Any] = {**look, "linestyle": "none"}
    for y, (value, low, high) in enumerate(np.asarray(rows, float)):
        drawn = {"color": look["color"], "lw": 1.4}
        ends = [end for end in (low, high) if np.isfinite(end)]
        if len(ends) == 2:
            ax.plot(ends, [y + above] * 2, ls=look["linestyle"], **drawn)
        for end in ends if len(ends) == 1 else ():
            towards = (-28, 0) if end == high else (28, 0)
            ax.annotate(
                "", xy=(end, y + above), xytext=towards, textcoords="offset points",
                arrowprops={"arrowstyle": "<|-", **drawn},
            )  # fmt: skip
        if np.isfinite(value):
            ax.plot([value], [y + above], ms=6, **mark)
