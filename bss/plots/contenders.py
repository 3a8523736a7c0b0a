"""Final losses of batch schedules and fixed batch sizes at equal tokens."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bss.plots import style
from bss.stats import LR_PHASES, ComparedRun, Comparison

ROLES: dict[str, tuple[str, dict[str, Any]]] = {
    "constant": ("constant batch", {"marker": "o", "color": "#8a8a8a"}),
    "average": ("constant,\nequal steps", {"marker": "s", "color": "#4a7ba6"}),
    "schedule": ("derived schedule", {"marker": "D", "color": "#c2571a"}),
    "policy": ("another policy", {"marker": "v", "color": "#6b8f47"}),
    "late": ("late switch", {"marker": "^", "color": "#10375c"}),
}


def contenders_figure(table: pd.DataFrame) -> Figure:
    """Plot the final loss of every compared run, one panel per LR phase, lowest on top.

    Marks are means over seeds, with each seed next to them. Numbers are differences to the best
    constant-batch run in 1e-3 nats, ± half the 95% CI (paired t) with several seeds. Runs with a
    much higher loss are hollow, at the right edge.

    Args:
        table: Final losses, with the columns of `bss.stats.Comparison.table`.
    """
    panels = Comparison(table).by_phase()
    most = max((len(rows) for rows in panels.values()), default=1)
    count = max(len(panels), 1)
    far = []
    figure, axes = style.new_figure((0.9 + 0.25 * most) * count, rows=count)
    for ax, (ending, rows) in zip(axes[:, 0], panels.items(), strict=False):
        far.append(_dots(ax, rows, most))
        loss = "test loss" if Comparison(table).column == "test_loss" else "held-out loss"
        style.panel_title(ax, LR_PHASES[ending].title, xlabel=f"final {loss} (nats per token)")
    roles = set(table["role"])
    looks = dict(named for role, named in ROLES.items() if role in roles)
    best = style.handle("best fixed batch size", color=style.FAINT, lw=1, ls="--")
    off = [style.hollow("much higher loss:\nat the right edge", ms=6)] * any(far)
    return style.side_legend(figure, [*style.handles(looks, ls="none", ms=6), best, *off])


def _dots(ax: Axes, rows: list[ComparedRun], most: int) -> bool:
    """Draw the runs of a panel; return whether one has a loss that is off its scale."""
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_yticks(range(len(rows)), [style.named(row.name) for row in rows])
    ax.set_ylim(most - 0.5, -0.5)
    losses = np.array([row.loss for row in rows])
    # Far-off constants would squeeze those that are compared into a few pixels.
    edge = losses[0] + max(3 * float(np.median(losses - losses[0])), 1e-3)
    span = min(edge, losses[-1]) - losses[0] or 1e-3
    end = losses[0] + 1.25 * span  # room for the numbers
    for y, row in enumerate(rows):
        look = ROLES[row.role][1]
        ax.axhline(y, color=style.GRID, linewidth=0.7, zorder=0)
        if row.best:
            ax.axvline(row.loss, color=style.FAINT, linewidth=1, linestyle="--", zorder=1)
        seeds = [float(loss) for loss in row.losses.values() if loss <= edge]
        if len(row.losses) > 1 and row.loss <= edge:
            ax.plot(seeds, [y] * len(seeds), linestyle="none", ms=3.5, alpha=0.4, **look)
        mark: dict[str, Any] = {"linestyle": "none", "markersize": 7, "zorder": 4, **look}
        text: dict[str, Any] = {"size": style.SMALL, "va": "center", "zorder": 3}
        text["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        if row.loss > edge:
            ax.plot([end], [y], mfc="white", clip_on=False, **mark)
            ax.text(end - 0.05 * span, y, difference_text(row), ha="right", **text)
        else:
            ax.plot([row.loss], [y], **mark)
            ax.text(max([row.loss, *seeds]) + 0.05 * span, y, difference_text(row), **text)
    ax.set_xlim(losses[0] - 0.08 * span, end)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    return bool((losses > edge).any())


def difference_text(row: ComparedRun) -> str:
    """Return a run's label: its difference to the best constant-batch run, in 1e-3 nats."""
    if row.best or math.isnan(row.difference):
        return "best constant" if row.best else "–"
    spread = "" if row.error is None else f" ± {1e3 * row.error:.1f}"
    return f"{1e3 * row.difference:+.1f}{spread}".replace("-", "−")
