"""Final losses over batch size and LR: one map per (N, D), with the runs."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bss.laws import TableFit
from bss.laws.final_loss.best import BestLR
from bss.laws.minimum import parabola_vertex
from bss.plots import style
from bss.units import rounded_tokens

PANELS = 4
LEVELS = (0.003, 0.01, 0.03, 0.1)  # nats above the best
FAR = 100.0
GREYS = ("#ffffff", "#f3f3f3", "#e4e4e4", "#d2d2d2", "#bdbdbd")


def rates_figure(fit: TableFit) -> Figure:
    """Plot one panel for each of up to four (N, D), by increasing compute.

    Lines have equal excess loss, in nats. The dashed line is the best LR at each batch size, the
    dotted line the best batch size at each LR. The star is the optimum, points are runs.
    """
    assert fit.best_lrs is not None
    ordered = sorted(fit.best_lrs.optima, key=lambda at: at.params * at.tokens)
    picked = np.unique(np.linspace(0, len(ordered) - 1, PANELS).round().astype(int))
    figure, axes = style.panels(len(picked), 2.9, beside=1.6)
    for ax, i in zip(axes, picked, strict=True):
        _map(ax, fit, ordered[i])
    ends = [f"≤ {level:g}" for level in LEVELS] + [f"> {LEVELS[-1]:g}"]
    marks = [
        *(Patch(fc=g, ec=style.FAINT, lw=0.5, label=e) for g, e in zip(GREYS, ends, strict=True)),
        style.handle("best LR at each batch size", color=style.INK, ls="--", lw=1.2),
        style.handle("best batch size at each LR", color=style.INK, ls=":", lw=1.4),
        style.handle("best of both", color=style.INK, marker="*", ls="none", ms=9),
        style.handle("runs", color=style.FAINT, marker="o", ls="none", ms=2.5),
    ]
    return style.side_legend(figure, marks, "excess loss (nats)")


def _map(ax: Axes, fit: TableFit, at: BestLR) -> None:
    points = fit.law.points
    rows = (points.params == at.params) & (np.abs(np.log(points.tokens / at.tokens)) < 0.03)
    batch, lr, loss = fit.law.surface(at.params, at.tokens)
    above = loss - loss.min()
    ax.contourf(batch, lr, above.T, levels=(0.0, *LEVELS, FAR), colors=GREYS)
    lines = ax.contour(batch, lr, above.T, levels=LEVELS, colors=style.INK, linewidths=0.7)
    ax.clabel(lines, fmt=lambda x: f"{x:g}", fontsize=style.SMALL)
    ax.plot(
        points.batch[rows], points.lr[rows], "o", ms=1.8, color=style.FAINT, mec="#777777", mew=0.3
    )
    ax.plot(batch, fit.law.best_lr(at.params, at.tokens, batch), "--", color=style.INK, lw=1.2)
    at_rates = np.exp(parabola_vertex(np.log(batch), above.T))
    ax.plot(at_rates, lr, ":", color=style.INK, lw=1.4)
    if at.lr.value is not None:
        ax.plot([at.batch], [at.lr.value], "*", ms=10, color=style.INK, mec="white", mew=0.6)
    ends = points.batch[rows], points.lr[rows]
    (left, right), (low, high) = ((x.min() / 1.2, x.max() * 1.2) for x in ends)
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    title = f"N = {rounded_tokens(at.params)}, D = {rounded_tokens(at.tokens)}"
    style.panel_title(ax, title, xlabel="batch (tokens)", ylabel="peak learning rate")
    style.tokens_axis(ax.xaxis, most=5)
