"""One pair of axes for a fit of any kind: the measurements and the law."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.laws import (
    BranchFit,
    CriticalFit,
    CurveFit,
    EqualFit,
    EsFit,
    LossFit,
    LrFit,
    OwnFit,
)
from bss.laws.base import Fit
from bss.plots import style
from bss.plots.best_lr import draw_best_lrs
from bss.plots.critical import SYMBOLS, curve_handles, draw_law, draw_steps, law_handles
from bss.plots.equal import draw_equal
from bss.plots.final_loss import draw_model, explained
from bss.plots.ramps import draw_branches
from bss.units import rounded_tokens

RUNS = 10  # of loss curves that are drawn
POINTS = 300  # of a line


def plot_fit(fit: Fit, ax: Axes | None = None) -> Axes:
    """Plot the measurements and the law of a fit on axes, by default in a new figure.

    - E(S): tokens to each target loss against batch size.
    - Critical batch sizes: against N or D, or, without a law, steps against batch size.
    - Final losses: against batch size, for the largest model.
    - Loss curves: loss against tokens.
    - A law of a user: what was measured against what is fitted.
    - Runs of equal cost: loss against batch size.
    - Best LRs: against tokens, model size or batch size; of one sweep the losses.
    - Branches: penalty of each larger batch size against tokens at the checkpoint.
    """
    ax = style.axes_or_new(ax)
    if isinstance(fit, EsFit):
        _draw_es(ax, fit)
    elif isinstance(fit, CriticalFit):
        _draw_critical(ax, fit)
    elif isinstance(fit, LossFit):
        _draw_losses(ax, fit)
    elif isinstance(fit, CurveFit):
        _draw_curves(ax, fit)
    elif isinstance(fit, OwnFit):
        _draw_own(ax, fit)
    elif isinstance(fit, EqualFit):
        draw_equal(ax, fit)
    elif isinstance(fit, LrFit):
        draw_best_lrs(ax, fit)
    elif isinstance(fit, BranchFit):
        draw_branches(ax, fit)
    return ax


def fit_figure(fit: Fit) -> Figure:
    """Return `plot_fit` as a figure without pyplot, for a file."""
    figure, [[ax]] = style.new_figure(4.0)
    plot_fit(fit, ax)
    return figure


def _draw_es(ax: Axes, fit: EsFit) -> None:
    """Tokens to each target against batch size: runs, the law, B_opt with its interval."""
    table = fit.residuals()
    looks = style.named_styles(at.target_loss for at in fit.fits)
    batches = np.geomspace(min(fit.batches) / 1.3, max(fit.batches) * 1.3, POINTS)
    measured = table["measured"].to_numpy(float)
    highest = float(measured.max(initial=1.0))
    for at in fit.fits:
        look = looks[at.target_loss]
        here = table.loc[np.isclose(table["target_loss"].to_numpy(float), at.target_loss)]
        ax.plot(here["batch"], here["measured"], ls="none", ms=4.5, mec="white", mew=0.4, **look)
        if at.status == "converged":
            tokens = fit.tokens(batches, at.target_loss)
            ax.plot(batches, tokens, color=look["color"], lw=1.2)
        best = at.best
        if best.value is not None and at.E_min is not None:
            ends = [best.low or batches[0], best.high or batches[-1]]
            ax.plot(ends, [at.E_min] * 2, color=look["color"], lw=4, alpha=0.3)
            ax.plot([best.value], [at.E_min], "D", ms=7, mfc="white", mec=look["color"], mew=1.4)
    lowest = float(measured.min(initial=highest))
    ax.set(yscale="log", ylim=(lowest / 1.4, highest * 1.6), xlim=(batches[0], batches[-1]))
    style.batch_axis(ax.xaxis)
    style.tokens_axis(ax.yaxis)
    label = {"xlabel": "batch size (sequences)", "ylabel": "tokens to the target loss"}
    style.panel_title(ax, f"E(S): {fit.law_name}", **label)
    style.legend_beside(
        ax, [*style.handles(looks, "loss {:.4g}", ls="none", ms=4.5), *_es_handles(fit)]
    )


def _es_handles(fit: EsFit) -> list[Line2D]:
    """Return the entries of a legend for lines and B_opt: what is drawn, or why nothing is."""
    entries = []
    if any(at.status == "converged" for at in fit.fits):
        entries.append(style.handle("law", color=style.INK, lw=1.2))
    if any(at.best.value is not None for at in fit.fits):
        mark: dict[str, Any] = {"marker": "D", "mfc": "white", "mec": style.INK, "ms": 7}
        entries.append(style.handle(f"$B_{{opt}}$, {fit.level:.0%} interval", ls="none", **mark))
    else:
        entries.append(style.handle("$B_{opt}$ not resolved:\nsee the answer", ls="none"))
    return entries


def _draw_critical(ax: Axes, fit: CriticalFit) -> None:
    """The law in one variable with the critical batch sizes, or else the steps of each curve."""
    name = next((name for name in SYMBOLS if name in fit.laws), None)
    if name is None:
        draw_steps(ax, fit)
        style.legend_beside(ax, curve_handles(fit))
        return
    draw_law(ax, fit, name)
    style.legend_beside(ax, law_handles(fit.level))


def _draw_losses(ax: Axes, fit: LossFit) -> None:
    """Final losses of the largest model against batch size, one colour per budget."""
    params = max(at.params for at in fit.optima)
    above = draw_model(ax, fit, params)
    budgets = sorted({at.tokens for at in fit.optima if at.params == params})
    looks = style.named_styles(budgets)
    entries = [style.handle(rounded_tokens(b), **look, lw=1.4, ms=5) for b, look in looks.items()]
    style.legend_beside(ax, [*entries, *explained(fit, above)], "D (tokens)")


def _draw_curves(ax: Axes, fit: CurveFit) -> None:
    """Loss against tokens of an even selection of the runs: measured (marks) and fitted (lines)."""
    table = fit.residuals()
    names = list(dict.fromkeys(table["run"]))
    shown = _selected(names)
    looks = style.named_styles(shown)
    for name, look in looks.items():
        rows = table.loc[table["run"] == name]
        ax.plot(rows["tokens"], rows["measured"], ls="none", ms=3.5, mec="white", mew=0.3, **look)
        if fit.status != "not converged":
            ax.plot(rows["tokens"], rows["fitted"], color=look["color"], lw=1.2)
    ax.set_xscale("log")
    ax.set(xlabel="tokens consumed", ylabel="loss (nats per token)")
    if len(table):
        tokens = pd.Series(table["tokens"]).astype(float)
        ax.set_xlim(tokens.min() / 1.2, tokens.max() * 1.2)
        style.tokens_axis(ax.xaxis)
    style.panel_title(ax, f"functional scaling law ({fit.clock}), rms error {fit.rmse:.2%}")
    entries = [style.handle(style.named(n), lw=1.2, ms=4, **look) for n, look in looks.items()]
    entries.append(style.handle("marks: measured; lines: law", ls="none"))
    if len(shown) < len(names):
        entries.append(style.handle(f"{len(names) - len(shown)} more runs: not shown", ls="none"))
    style.legend_beside(ax, entries, "run")


def _draw_own(ax: Axes, fit: OwnFit) -> None:
    """Measured against fitted values, one colour per value of the first column."""
    table = fit.residuals()
    values = sorted(set(table[fit.law.columns[0]]))
    looks = style.named_styles(_selected(values))
    ends = [table["fitted"].astype(float).min() / 1.05, table["fitted"].astype(float).max() * 1.05]
    ax.plot(ends, ends, color=style.INK, lw=1.0, ls="-", marker="")
    for value, look in looks.items():
        rows = table.loc[table[fit.law.columns[0]] == value]
        ax.plot(rows["fitted"], rows["measured"], ls="none", ms=4.5, mec="white", mew=0.4, **look)
    unit = f" ({fit.law.unit})" if fit.law.unit else ""
    ax.set(xscale="log", yscale="log", xlim=ends)
    error = f"rms error {fit.rmse:.2%} of {fit.law.measured}"
    label = {
        "xlabel": f"fitted {fit.law.measured}{unit}",
        "ylabel": f"measured {fit.law.measured}{unit}",
    }
    style.panel_title(ax, f"{fit.law_name}: {error}", **label)
    entries = style.handles(looks, "{:.4g}", ls="none", ms=4.5)
    entries.append(style.handle("measured = fitted", color=style.INK, lw=1.0))
    if len(looks) < len(values):
        entries.append(style.handle(f"{len(values) - len(looks)} more: not shown", ls="none"))
    style.legend_beside(ax, entries, fit.law.columns[0])


def _selected(names: Sequence[Any]) -> list[Any]:
    """Return an even selection of the names, with both ends."""
    indices = np.unique(np.linspace(0, len(names) - 1, RUNS).astype(int)) if names else []
    return [names[i] for i in indices]
