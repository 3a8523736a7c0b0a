"""Which of two batch sizes is ahead, and where B_opt lies, as the loss falls.

Bands and bars are 2 standard errors over seeds, unless a figure says otherwise; none is drawn for
one seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bss.laws import EsFit
from bss.plots import style

PAIRS = 4
FALLING = "target loss (nats), falling →"
LEAST_RATIO, MOST_RATIO = 0.5, 1.35
SPREAD = Patch(color=style.INK, alpha=0.16, lw=0, label="± 2 standard errors\nover seeds")


def pair_figure(panels: Mapping[str, tuple[pd.DataFrame, EsFit | None]]) -> Figure:
    """Tokens of the smallest batch over those of larger ones, against the target loss.

    Where a line passes 1 the loss curves of its two batches cross. The hyperbola (McCandlish et
    al., arXiv 1812.06162) keeps every ratio below 1; its own ratios are dashed. A hollow mark is a
    bound, of a pair of which one batch missed the target in some seed.

    Args:
        panels: a title to the table of `bss.points.crossings.crossings` and the fitted hyperbola.
    """
    figure, axes = style.new_figure(3.6, columns=len(panels), sharey=True)
    smallest = min(style.columns(table, "small")[0].min() for table, _ in panels.values())
    larger = sorted({float(b) for table, _ in panels.values() for b in table["large"]})[:PAIRS]
    looks = style.named_styles(larger)
    for ax, (title, (table, law)) in zip(axes[0], panels.items(), strict=True):
        ax.axhline(1, color=style.INK, lw=0.8, zorder=1)
        for batch, look in looks.items():
            pair = table.loc[(table["small"] == smallest) & (table["large"] == batch)]
            bounded = pair["bound"].isin(["at most", "at least"])
            x, log, errors = style.columns(pair.loc[~bounded], "target_loss", "log_ratio", "error")
            style.band(ax, (x, *np.exp([log, log - errors, log + errors])), look)
            x, log = style.columns(pair.loc[bounded], "target_loss", "log_ratio")
            ax.plot(x, np.exp(log), **{"ms": 5.5, **look, "linestyle": "none", "mfc": "white"})
            _arrows(ax, x, np.exp(log), list(pair.loc[bounded, "bound"]), look["color"])
            if law is not None:
                at = [fit.target_loss for fit in law.fits if fit.status == "converged"]
                tokens = np.array([law.tokens([smallest, batch], t) for t in at])
                ax.plot(at, tokens[:, 0] / tokens[:, 1], color=look["color"], lw=1.1, ls="--")
        ax.set_xlim(style.falling(table["target_loss"]))
        ax.set_xlabel(FALLING, fontsize=8)
        style.panel_title(ax, title)
    label = f"tokens of batch {smallest:g}\nover those of the larger batch"
    axes[0, 0].set(ylim=(LEAST_RATIO, MOST_RATIO), ylabel=label)
    entries = style.handles(looks, f"{smallest:g} over {{:g}}", ms=5, lw=1.4)
    if any(law is not None for _, law in panels.values()):
        entries.append(style.handle("the hyperbola's", color=style.FAINT, lw=1.1, ls="--"))
    if any(table["bound"].isin(["at most", "at least"]).any() for table, _ in panels.values()):
        entries.append(style.hollow("a bound: a batch\nmissed the loss", ms=5))
    return style.side_legend(figure, [*entries, SPREAD])


def optimum_figure(
    panels: Mapping[str, Mapping[str, pd.DataFrame]], bars: str = "± 2 standard\nerrors over seeds"
) -> Figure:
    """The best batch against the target loss, one panel per title, one line per name.

    A hollow mark is a bound: in some seed the best batch is at an edge of those that reached the
    loss. An arrow points to where the optimum may lie.

    Args:
        panels: a title to named tables of target_loss, batch, low, high (sequences) and bound, ""
            where it is none.
        bars: what they are.
    """
    looks = style.named_styles(name for lines in panels.values() for name in lines)
    figure, axes = style.new_figure(3.3, columns=len(panels), sharey=True)
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        losses = pd.concat(lines.values())["target_loss"]
        dodge = 0.012 * (losses.max() - losses.min())
        for i, (name, table) in enumerate(lines.items()):
            x, y, low, high = style.columns(table, "target_loss", "batch", "low", "high")
            x = x + dodge * (i - (len(lines) - 1) / 2)
            style.bars(ax, (x, y, low, high), looks[name], table["bound"] == "")
            _arrows(ax, x, y, list(table["bound"]), looks[name]["color"])
        ax.set_xlim(style.falling(losses))
        ax.set_xlabel(FALLING, fontsize=8)
        style.panel_title(ax, title)
    every = pd.concat([table for lines in panels.values() for table in lines.values()])
    values = style.columns(every, "batch", "low", "high")
    limits = np.nanmin(values) / 1.8, np.nanmax(values) * 1.5
    axes[0, 0].set(ylim=limits, ylabel="$B_{opt}$ (sequences)")
    style.batch_axis(axes[0, 0].yaxis)
    entries = style.handles(looks, ms=5, lw=1.4)
    if set(every["bound"]) - {""}:
        entries.append(style.hollow("a bound: the arrow\nis where it may lie", ms=5))
    entries.append(style.handle(f"bars: {bars}", ls="none"))
    return style.side_legend(figure, entries)


def _arrows(ax: Axes, x: np.ndarray, y: np.ndarray, bounds: Sequence[str], colour: Any) -> None:
    """From each mark that is a bound to where the value may lie."""
    ways = {"at most": (-16,), "at least": (16,), "unknown": (-16, 16)}
    for at, value, bound in zip(x, y, bounds, strict=True):
        for way in ways.get(bound, ()):
            arrow = {"arrowstyle": "<|-", "color": colour, "lw": 1, "shrinkA": 0, "shrinkB": 3}
            place = {"xytext": (0, way), "textcoords": "offset points"}
            ax.annotate("", (at, value), **place, arrowprops=arrow)
