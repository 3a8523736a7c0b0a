"""Held-out loss against tokens for constant batches, and where their curves cross."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.plots import style
from bss.points.batches import batch_curves, excess
from bss.points.curve import Smooth
from bss.tables import loss_column


def loss_curves(runs: pd.DataFrame, targets: Sequence[float]) -> Figure:
    """Loss of each constant batch, and its excess over the best batch at equal tokens.

    The upper panel has the losses as measured, and marks where the monotone fit to each run
    (`bss.points.curve`) first meets a target. The lower one has the excess of that fit, averaged
    over seeds: where the line at zero changes, the best batch changes.

    Args:
        runs: a run table; runs that change their batch are left out.
        targets: losses in nats.

    Raises:
        InputError: no run has a constant batch and at least 3 losses.
    """
    column = loss_column(runs)
    curves = batch_curves(runs, column)
    styles = style.batch_styles(curve.batch for curve in curves)
    figure, axes = style.new_figure(6.4, rows=2, sharex=True, height_ratios=(1.7, 1))
    top, bottom = axes[:, 0]
    for target in targets:
        top.axhline(target, color=style.FAINT, linewidth=0.8, zorder=1)
    for curve in curves:
        look, seen = styles[curve.batch], curve.rows[curve.rows[column].notna()]
        top.plot(seen["tokens"], seen[column], color=look["color"], linewidth=1.5)
        _mark_crossings(top, curve.fit, targets, look)
    _draw_excess(bottom, *excess(curves), styles)
    _limit(top, curves, targets)
    noun = "held-out loss" if column == "eval_loss" else "training loss"
    top.set_ylabel(f"{noun} (nats per token)")
    bottom.set_ylabel("excess over the best\nbatch (nats per token)")
    bottom.set(xlabel="tokens consumed", xscale="log")
    style.tokens_axis(bottom.xaxis)
    entries = style.handles(styles, "{:g}", lw=1.5, ms=5)
    entries.append(style.handle("target loss", color=style.FAINT, lw=0.8))
    return style.side_legend(figure, entries, "batch (sequences)")


def _mark_crossings(ax: Axes, curve: Smooth, targets: Sequence[float], look: dict) -> None:
    met = [t for t in targets if curve.loss[-1] <= t < curve.loss[0]]
    first = [np.interp(-t, -curve.loss, curve.log_tokens) for t in met]
    ax.plot(
        np.exp(first), met, linestyle="none", markersize=5.5, markeredgecolor="white",
        markeredgewidth=0.5, zorder=3, **look,
    )  # fmt: skip


def _draw_excess(
    ax: Axes, tokens: np.ndarray, above: dict[float, np.ndarray], styles: dict
) -> None:
    for i, (batch, look) in enumerate(styles.items()):
        offset = (i * 2, 2 * len(styles))
        ax.plot(tokens, above[batch], **look, markevery=offset, ms=4, linewidth=1.5)
    # The best batches change places in a narrow band; those far from it may leave the panel.
    last = [known[-1] for loss in above.values() if len(known := loss[np.isfinite(loss)])]
    top = max(2 * float(np.quantile(last, 0.7)), 1e-3)
    ax.set_ylim(-0.04 * top, top)


def _limit(ax: Axes, curves: list, targets: Sequence[float]) -> None:
    lowest = min(float(curve.fit.loss[-1]) for curve in curves)
    highest = max(float(curve.fit.loss[0]) for curve in curves)
    if targets:
        highest = min(highest, max(targets) + 0.35 * (max(targets) - lowest))
    margin = 0.04 * (highest - lowest)
    ax.set_ylim(lowest - margin, highest + margin)
