"""Held-out loss against tokens for constant batches, and where their curves cross."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.errors import InputError
from bss.plots.style import FAINT, batch_styles, new_figure, side_legend, tokens_axis
from bss.points.curve import Smooth, smooth_curve
from bss.tables import loss_column

GRID_POINTS = 200
END_SLACK = 0.03  # equal budgets end apart by remainders that fill no batch


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
    curves = _constant_curves(runs, column)
    styles = batch_styles(batch for batch, _, _ in curves)
    figure, axes = new_figure(6.4, rows=2, sharex=True, height_ratios=(1.7, 1))
    top, bottom = axes[:, 0]
    for target in targets:
        top.axhline(target, color=FAINT, linewidth=0.8, zorder=1)
    for batch, run, curve in curves:
        seen = run[run[column].notna()]
        top.plot(seen["tokens"], seen[column], color=styles[batch]["color"], linewidth=1.5)
        _mark_crossings(top, curve, targets, styles[batch])
    _draw_excess(bottom, curves, styles)
    _limit(top, curves, targets)
    noun = "held-out loss" if column == "eval_loss" else "training loss"
    top.set_ylabel(f"{noun} (nats per token)")
    bottom.set_ylabel("excess over the best\nbatch (nats per token)")
    bottom.set_xlabel("tokens consumed")
    bottom.set_xscale("log")
    tokens_axis(bottom.xaxis)
    handles = [
        Line2D([], [], **style, linewidth=1.5, markersize=5, label=f"{batch:g}")
        for batch, style in styles.items()
    ]
    handles.append(Line2D([], [], color=FAINT, linewidth=0.8, label="target loss"))
    side_legend(figure, handles, "batch (sequences)")
    return figure


def _constant_curves(runs: pd.DataFrame, column: str) -> list[tuple[float, pd.DataFrame, Smooth]]:
    """Batch, rows and monotone fit of each run of one batch, ascending in batch."""
    curves = []
    for _, run in runs.groupby("run", sort=False):
        losses = np.isfinite(run[column].to_numpy(float)).sum()
        if len(np.unique(run["batch"])) == 1 and losses >= 3:
            curves.append((float(run["batch"].iloc[0]), run, smooth_curve(run, column)))
    if not curves:
        raise InputError("runs: no run has a constant batch and at least 3 losses; add one")
    return sorted(curves, key=lambda entry: entry[0])


def _mark_crossings(ax: Axes, curve: Smooth, targets: Sequence[float], style: dict) -> None:
    met = [t for t in targets if curve.loss[-1] <= t < curve.loss[0]]
    first = [np.interp(-t, -curve.loss, curve.log_tokens) for t in met]
    ax.plot(
        np.exp(first), met, linestyle="none", markersize=5.5, markeredgecolor="white",
        markeredgewidth=0.5, zorder=3, **style,
    )  # fmt: skip


def _draw_excess(ax: Axes, curves: list, styles: dict) -> None:
    start = max(curve.log_tokens[0] for _, _, curve in curves)
    end = max(curve.log_tokens[-1] for _, _, curve in curves)
    x = np.linspace(start, end, GRID_POINTS)
    mean = {
        batch: np.mean([_on_grid(curve, x) for b, _, curve in curves if b == batch], axis=0)
        for batch in styles
    }
    best = np.nanmin(list(mean.values()), axis=0)
    for i, (batch, style) in enumerate(styles.items()):
        offset = (i * 2, 2 * len(styles))
        ax.plot(np.exp(x), mean[batch] - best, **style, markevery=offset, ms=4, linewidth=1.5)
    # The best batches change places in a narrow band; those far from it may leave the panel.
    last = [excess[-1] for v in mean.values() if len(excess := (v - best)[np.isfinite(v)])]
    top = max(2 * float(np.quantile(last, 0.7)), 1e-3)
    ax.set_ylim(-0.04 * top, top)


def _on_grid(curve: Smooth, x: np.ndarray) -> np.ndarray:
    """Losses at log tokens x; NaN past the curve's end, but for a trifle of the tokens."""
    known = x <= curve.log_tokens[-1] + END_SLACK
    return np.where(known, np.interp(x, curve.log_tokens, curve.loss), np.nan)


def _limit(ax: Axes, curves: list, targets: Sequence[float]) -> None:
    lowest = min(float(curve.loss[-1]) for _, _, curve in curves)
    highest = max(float(curve.loss[0]) for _, _, curve in curves)
    if targets:
        highest = min(highest, max(targets) + 0.35 * (max(targets) - lowest))
    margin = 0.04 * (highest - lowest)
    ax.set_ylim(lowest - margin, highest + margin)
