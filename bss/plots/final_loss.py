"""Final losses: loss against batch size with its minimum."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.laws import LossFit
from bss.laws.final_loss.best import TOLERANCES, CellOptimum
from bss.plots import style
from bss.units import rounded_tokens

HIGHEST = 0.06  # nats above the best batch that are shown
MODELS = 5  # panels at most
WHERE: dict[str, Any] = {"xlabel": "batch (tokens)", "ylabel": "loss above the best batch (nats)"}


def loss_figure(fit: LossFit) -> Figure:
    """Plot one panel per model, with one loss-vs-batch curve per token budget.

    Lines are the law, marks the runs. A bar below a curve spans the batch sizes within 0.003 nats
    of the best; its mark is B_opt. If the law did not converge, only the runs are drawn, relative
    to the best one. For errors of the law see `residuals_figure`.
    """
    models = np.unique([at.params for at in fit.optima])
    shown = models[np.unique(np.linspace(0, len(models) - 1, MODELS).round().astype(int))]
    figure, axes = style.panels(len(shown), 2.7, beside=1.5)
    seen = fit.tested["batch_tokens"]
    budgets = sorted({at.tokens for at in fit.optima if at.params in shown})
    looks = style.named_styles(budgets)
    above = 0
    for ax, params in zip(axes, shown, strict=True):
        for row, at in enumerate(at for at in fit.optima if at.params == params):
            above += _valley(ax, fit, at, row, looks[at.tokens])
        style.panel_title(ax, f"N = {rounded_tokens(params)}", **WHERE)
        ax.set(xscale="log", ylim=(-0.3 * HIGHEST, HIGHEST), xlim=(seen.low / 1.3, seen.high * 1.3))
        style.tokens_axis(ax.xaxis, most=5)
    entries = [style.handle(rounded_tokens(b), **look, lw=1.4, ms=5) for b, look in looks.items()]
    return style.side_legend(figure, [*entries, *explained(fit, above)], "D (tokens)")


def draw_model(ax: Axes, fit: LossFit, params: float) -> int:
    """Draw the curves of one model on axes, a colour per budget; return the number of runs above.

    Runs more than HIGHEST above the best batch are outside the axes.
    """
    optima = [at for at in fit.optima if at.params == params]
    looks = style.named_styles(sorted({at.tokens for at in optima}))
    above = sum(_valley(ax, fit, at, row, looks[at.tokens]) for row, at in enumerate(optima))
    seen = fit.tested["batch_tokens"]
    style.panel_title(ax, f"N = {rounded_tokens(params)}", **WHERE)
    ax.set(xscale="log", ylim=(-0.3 * HIGHEST, HIGHEST), xlim=(seen.low / 1.3, seen.high * 1.3))
    style.tokens_axis(ax.xaxis, most=5)
    return above


def explained(fit: LossFit, above: int) -> list[Line2D]:
    """Return the entries of a legend for marks, lines, bars and runs outside the axes, if any."""
    entries = [style.handle("run", color=style.INK, marker="o", ls="none", ms=4)]
    if fit.status == "converged":
        bar = f"bar: within {TOLERANCES[0]:g} nats of\nthe best; its mark: $B_{{opt}}$"
        entries.append(style.handle("law", color=style.INK, lw=1.3))
        entries.append(style.handle(bar, color=style.INK, lw=2, alpha=0.5))
    text = f"{above} runs more than\n{HIGHEST:g} nats above: not shown"
    return entries + [style.handle(text, ls="none")] * bool(above)


def _valley(ax: Axes, fit: LossFit, at: CellOptimum, row: int, look: dict) -> int:
    """Plot one (N, D): law, runs, bar of its tolerance range; return the number of runs above."""
    points = fit.law.points
    here = (points.params == at.params) & (np.abs(np.log(points.tokens / at.tokens)) < 0.03)
    batch, loss, _ = fit.law.curve(at.params, at.tokens)
    best = loss.min() if fit.status == "converged" else points.loss[here].min(initial=np.inf)
    ax.plot(points.batch[here], points.loss[here] - best, ls="none", ms=4, **look)
    above = int((points.loss[here] - best > HIGHEST).sum())
    if fit.status != "converged":
        return above
    ax.plot(batch, loss - best, color=look["color"], lw=1.3)
    y = -0.05 * HIGHEST * (row + 1)
    if (alike := at.batch.within(TOLERANCES[0])) is not None:
        ends = alike.low or batch[0], alike.high or batch[-1]
        ax.plot(ends, [y, y], color=look["color"], lw=2, alpha=0.5, solid_capstyle="butt")
    if at.batch.value is not None:
        ax.plot([at.batch.value], [y], ls="none", ms=4.5, mec="white", mew=0.5, zorder=4, **look)
    return above
