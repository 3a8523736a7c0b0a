"""Final losses of batch schedules and fixed batch sizes at equal tokens."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bss.plots import style
from bss.stats import CONSTANT_ROLES, LR_PHASES, ComparedRun, Comparison

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
    most, count = max((len(rows) for rows in panels.values()), default=1), max(len(panels), 1)
    figure, axes = style.new_figure((0.9 + 0.25 * most) * count, rows=count)
    for ax, (ending, rows) in zip(axes[:, 0], panels.items(), strict=False):
        _dots(ax, rows, most)
        style.panel_title(
            ax, LR_PHASES[ending].title, xlabel=f"final {loss_noun(table)} (nats per token)"
        )
    roles = set(table["role"])
    looks = dict(named for role, named in ROLES.items() if role in roles)
    best = style.handle("best fixed batch size", color=style.FAINT, lw=1, ls="--")
    return style.side_legend(figure, [*style.handles(looks, ls="none", ms=6), best])


def endings_figure(table: pd.DataFrame) -> Figure:
    """Plot each compared run's loss minus the best constant-batch run's, by LR phase.

    Fixed batch sizes are grey, with labels at the right; lines that are never near leave the panel.
    Runs with a growing batch differ in colour, marker and dashes.

    Args:
        table: Final losses, with the columns of `bss.stats.Comparison.table`.
    """
    panels = Comparison(table).by_phase()
    lines: dict[str, dict[int, ComparedRun]] = {}
    for at, rows in enumerate(panels.values()):
        for row in rows:
            lines.setdefault(row.name, {})[at] = row
    grows = [name for name, rows in lines.items() if not _constant(rows)]
    looks = {name: _grown_look(i, len(grows)) for i, name in enumerate(grows)}
    drawn = [row for name in grows for row in lines[name].values()]
    spread = [1e3 * (row.error or 0) for row in drawn]
    ends = [_height(row) + way * e for row, e in zip(drawn, spread, strict=True) for way in (-1, 1)]
    low, high = min([0, *ends]), max([0, *ends])
    margin = 0.05 * (high - low) or 1
    figure, [[ax]] = style.new_figure(max(3.6, 1 + 0.42 * len(grows)))
    ax.axhline(0, color=style.INK, lw=1, zorder=1)
    for name, rows in lines.items():
        place = grows.index(name) - (len(grows) - 1) / 2 if name in looks else 0
        shift = 0.28 * place / max(len(grows), 1)
        _slope(ax, rows, shift, looks.get(name))
    last = len(panels) - 1
    ax.set(ylim=(low - margin, high + margin), xlim=(-0.3, last + 0.45))
    constants = {n: rows[last] for n, rows in lines.items() if n not in looks and last in rows}
    _name_constants(ax, constants.values(), last)
    ax.set_ylabel(f"Δ {loss_noun(table)} vs. best\nfixed batch size (1e-3 nats per token)")
    ax.set_xticks(range(len(panels)), [LR_PHASES[ending].short for ending in panels])
    ax.grid(False, axis="x")
    best = style.handle("best fixed batch size", color=style.INK, lw=1)
    constant = style.handle("constant batch", color=style.FAINT, lw=1, marker="o", ms=3)
    bars = style.handle("bars: 95% CI\n(paired t)", ls="none")
    return style.side_legend(figure, [*style.handles(looks, ms=5.5, lw=1.3), best, constant, bars])


def _height(row: ComparedRun) -> float:
    """Return the loss minus the best constant-batch run's, in 1e-3 nats."""
    return 0.0 if row.best else 1e3 * row.difference


def _constant(rows: Mapping[int, ComparedRun]) -> bool:
    return all(row.role in CONSTANT_ROLES for row in rows.values())


def _grown_look(place: int, count: int) -> dict[str, Any]:
    """Return colour, marker and dashes of a run with a growing batch."""
    colour = matplotlib.colormaps["plasma"](0.05 + 0.75 * place / max(count - 1, 1))
    return {
        "color": colour,
        "marker": "D^sv<>PX*"[place % 9],
        "linestyle": ("-", "--", "-.", ":")[place % 4],
    }


def _name_constants(ax: Axes, rows: Iterable[ComparedRun], x: float) -> None:
    """Label fixed batch sizes at the right end of their lines, without overlaps."""
    low, high = ax.get_ylim()
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    place = -math.inf
    for row in sorted(rows, key=_height):
        end = _height(row)
        place = max(end, place + 0.04 * (high - low))
        if end < high:
            line = {"arrowstyle": "-", "color": style.FAINT, "lw": 0.5, "shrinkA": 0, "shrinkB": 2}
            ax.annotate(
                f"constant {row.batch}", (x, end), (x + 0.22, place),
                va="center", size=style.SMALL, arrowprops=line, bbox=box,
            )  # fmt: skip


def _slope(
    ax: Axes, rows: Mapping[int, ComparedRun], shift: float, look: Mapping[str, Any] | None
) -> None:
    """Plot one compared run over the LR phases: with error bars if its batch grows, else grey."""
    x = np.array(list(rows)) + shift
    y = np.array([_height(row) for row in rows.values()])
    if look is None:
        ax.plot(x, y, color=style.FAINT, lw=1, marker="o", ms=3, zorder=2)
        return
    error = np.array([1e3 * (row.error or 0) for row in rows.values()])
    ax.errorbar(x, y, yerr=error, lw=1.3, elinewidth=1, capsize=2, ms=5.5, zorder=4, **look)


def _dots(ax: Axes, rows: list[ComparedRun], most: int) -> None:
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_ylim(most - 0.5, -0.5)
    losses = np.array([row.loss for row in rows])
    # Far-off constants would squeeze those that are compared into a few pixels.
    edge = losses[0] + max(3 * float(np.median(losses - losses[0])), 1e-3)
    span = min(edge, losses[-1]) - losses[0] or 1e-3
    for y, row in enumerate(rows):
        look = ROLES[row.role][1]
        ax.axhline(y, color=style.GRID, linewidth=0.7, zorder=0)
        if row.best:
            ax.axvline(row.loss, color=style.FAINT, linewidth=1, linestyle="--", zorder=1)
        seeds = [float(loss) for loss in row.losses.values() if loss <= edge]
        if len(row.losses) > 1 and row.loss <= edge:
            ax.plot(seeds, [y] * len(seeds), linestyle="none", ms=3.5, alpha=0.4, **look)
        far: dict[str, Any] = {"mfc": "white"} if row.loss > edge else {}
        x = float(min(row.loss, edge))
        ax.plot([x], [y], linestyle="none", markersize=7, zorder=4, **look, **far)
        right = max([x, *seeds][: 1 if far else None]) + 0.05 * span
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        ax.text(right, y, difference_text(row), size=style.SMALL, va="center", bbox=box, zorder=3)
    # Room on the right for the numbers.
    ax.set_xlim(losses[0] - 0.08 * span, losses[0] + 1.25 * span)
    ax.xaxis.set_major_locator(MaxNLocator(5))


def loss_noun(table: pd.DataFrame) -> str:
    """Return the name of the compared loss."""
    return "test loss" if Comparison(table).column == "test_loss" else "held-out loss"


def difference_text(row: ComparedRun) -> str:
    """Return a run's label: its difference to the best constant-batch run, in 1e-3 nats."""
    return "best constant" if row.best else millinats(row.difference, row.error)


def millinats(difference: float, error: float | None = None) -> str:
    """Return a difference in 1e-3 nats, with half its interval, if known.

    Examples:
        >>> millinats(-0.0123), millinats(0.004, 0.001)
        ('−12.3', '+4.0 ± 1.0')
    """
    if math.isnan(difference):
        return "–"
    spread = "" if error is None else f" ± {1e3 * error:.1f}"
    return f"{1e3 * difference:+.1f}{spread}".replace("-", "−")
