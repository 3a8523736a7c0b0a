"""Final losses over batch size and LR: one map per (N, D), with the runs."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.laws import LossFit
from bss.laws.final_loss.best import BestLR
from bss.plots import style
from bss.units import rounded_tokens

PANELS = 4
LEVELS = (0.003, 0.01, 0.03, 0.1)  # nats above the best


def rates_figure(fit: LossFit) -> Figure:
    """Plot one panel for each of up to four (N, D), by increasing compute.

    Lines have equal excess loss, LEVELS in nats. The dashed line is the best LR at each batch size,
    the star the optimum, points are runs.
    """
    assert fit.best_lrs is not None
    ordered = sorted(fit.best_lrs.optima, key=lambda at: at.params * at.tokens)
    picked = np.unique(np.linspace(0, len(ordered) - 1, PANELS).round().astype(int))
    figure, axes = style.panels(len(picked), 2.9, beside=1.6)
    for ax, i in zip(axes, picked, strict=True):
        _map(ax, fit, ordered[i])
    levels = ", ".join(f"{level:g}" for level in LEVELS)
    marks = [
        style.handle(f"excess loss, from inside:\n{levels} nats", color=style.INK, lw=0.7),
        style.handle("best LR at each batch size", color=style.INK, ls="--", lw=1.2),
        style.handle("best of both", color=style.INK, marker="*", ls="none", ms=9),
        style.handle("runs", color=style.FAINT, marker="o", ls="none", ms=2.5),
    ]
    return style.side_legend(figure, marks)


def _map(ax: Axes, fit: LossFit, at: BestLR) -> None:
    points = fit.law.points
    rows = (points.params == at.params) & (np.abs(np.log(points.tokens / at.tokens)) < 0.03)
    batch, lr, loss = fit.law.surface(at.params, at.tokens)
    above = loss - loss.min()
    ax.contour(batch, lr, above.T, levels=LEVELS, colors=style.INK, linewidths=0.7)
    x = points.batch[rows]
    y = points.lr[rows]
    ax.plot(x, y, "o", ms=1.8, color=style.FAINT, mec="#777777", mew=0.3)
    ax.plot(batch, fit.law.best_lr(at.params, at.tokens, batch), "--", color=style.INK, lw=1.2)
    if at.lr.value is not None:
        ax.plot([at.batch], [at.lr.value], "*", ms=10, color=style.INK, mec="white", mew=0.6)
    limits = {"xlim": (x.min() / 1.2, x.max() * 1.2), "ylim": (y.min() / 1.2, y.max() * 1.2)}
    ax.set(xscale="log", yscale="log", **limits)
    title = f"N = {rounded_tokens(at.params)}, D = {rounded_tokens(at.tokens)}"
    style.panel_title(ax, title, xlabel="batch (tokens)", ylabel="peak learning rate")
    style.tokens_axis(ax.xaxis, most=5)
