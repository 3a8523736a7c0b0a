"""E(S) under WSD: which of two batches is ahead, where the best one lies, what a change moves.

The figures of Zhou et al. (arXiv 2601.05034) that the general ones leave out. Bands and bars are 2
standard errors over seeds, unless a figure says otherwise; none is drawn where there is one seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bss.laws import EsFit
from bss.laws.es.values import tokens_to_target as law_tokens
from bss.plots import style
from bss.units import format_tokens

PAIRS = 4
FALLING = "target loss (nats), falling →"
LEAST_RATIO, MOST_RATIO = 0.5, 1.35
SPREAD = Patch(color=style.INK, alpha=0.16, lw=0, label="± 2 standard errors\nover seeds")
BARS = style.handle("bars: ± 2 standard\nerrors over seeds", ls="none")


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
                tokens = np.array([law_tokens(law, [smallest, batch], t) for t in at])
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


def horizons_figure(horizons: pd.DataFrame) -> Figure:
    """Test loss of each constant batch above that of the best one, a line for each horizon.

    After the decay; paired by seed. Hollow: the batch that the law chooses. Batches far from the
    best leave the panel.

    Args:
        horizons: columns rates, horizon, batch, excess, excess_error, law_best.
    """
    titles = list(dict.fromkeys(horizons["rates"]))
    looks = style.batch_styles(horizons["horizon"])
    figure, axes = style.new_figure(3.4, columns=len(titles), sharey=True)
    near = []
    for ax, title in zip(axes[0], titles, strict=True):
        ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
        for end, look in looks.items():
            rows = horizons.loc[(horizons["rates"] == title) & (horizons["horizon"] == end)]
            x, y, error = style.columns(rows, "batch", "excess", "excess_error")
            near.append(np.sort(y)[min(3, len(y) - 1)])
            other = ~rows["law_best"].to_numpy(bool)
            style.band(ax, (x, y, y - error, y + error), look, other)
        style.batch_axis(ax.xaxis)
        style.panel_title(ax, title, xlabel="batch (sequences)")
    top = max(1.3 * max(near), 1e-3)
    label = "test loss above the best\nbatch (nats per token)"
    axes[0, 0].set(ylim=(-0.25 * top, top), ylabel=label)
    ends = {format_tokens(int(end)): look for end, look in looks.items()}
    choice = style.hollow("the law's choice", ms=5)
    entries = [*style.handles(ends, ms=5, lw=1.4), choice, SPREAD]
    return style.side_legend(figure, entries, "horizon (tokens)")


def changes_figure(table: pd.DataFrame, against: str = "constant 4") -> Figure:
    """What each contender ends above a reference, under each change of the training.

    Args:
        against: the reference, trained with the same change.
        table: columns change, contender, weights, difference (nats), error.
    """
    contenders = list(dict.fromkeys(table["contender"]))
    changes = list(dict.fromkeys(table["change"]))
    looks = style.named_styles(table["weights"])
    height = 0.9 + 0.3 * len(changes)
    figure, axes = style.new_figure(height, columns=len(contenders), sharex=True, sharey=True)
    for ax, contender in zip(axes[0], contenders, strict=True):
        ax.axvline(0, color=style.INK, lw=0.8, zorder=1)
        for i, (kind, look) in enumerate(looks.items()):
            rows = table.loc[(table["contender"] == contender) & (table["weights"] == kind)]
            places = np.array([changes.index(change) for change in rows["change"]])
            y = places + 0.22 * (i - (len(looks) - 1) / 2)
            x, error = style.columns(rows, "difference", "error")
            error = np.where(np.isfinite(error), error, 0)
            ax.errorbar(x, y, xerr=error, ls="none", ms=5.5, capsize=2.5, lw=1, **look)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        style.panel_title(ax, contender)
    figure.supxlabel(f"loss less that of {against} (nats per token)", fontsize=9)
    axes[0, 0].set_yticks(range(len(changes)), changes)
    axes[0, 0].set_ylim(len(changes) - 0.5, -0.5)
    return style.side_legend(figure, [*style.handles(looks, ls="none", ms=5.5), BARS])


def irreducible_figure(estimates: pd.DataFrame) -> Figure:
    """The L_0 that each law finds for each seed, against the language's own.

    Bars are the fits' intervals; they may leave the panel.

    Args:
        estimates: columns seed, law, L_0, low, high, truth, reached.
    """
    looks = style.named_styles(estimates["law"])
    figure, [[ax]] = style.new_figure(3.4)
    seeds = sorted(set(estimates["seed"]))
    for i, (law, look) in enumerate(looks.items()):
        rows = estimates.loc[estimates["law"] == law]
        seed, y, low, high = style.columns(rows, "seed", "L_0", "low", "high")
        x = np.searchsorted(seeds, seed) + 0.16 * (i - (len(looks) - 1) / 2)
        style.bars(ax, (x, y, low, high), look | {"linestyle": "none"})
    truth, reached = (float(estimates[name].iloc[0]) for name in ("truth", "reached"))
    own = ax.axhline(truth, color=style.INK, lw=1, zorder=1, label="the language's")
    run = ax.axhline(reached, color=style.FAINT, lw=1, ls="--", zorder=1)
    run.set_label("lowest loss of a\nlong run")
    lowest, highest = estimates["L_0"].min(), max(estimates["L_0"].max(), reached)
    span = highest - lowest
    ax.set_ylim(lowest - 0.3 * span, highest + 0.2 * span)
    ax.set_xticks(range(len(seeds)), [str(seed) for seed in seeds])
    ax.set(xlabel="seed", ylabel="$L_0$ (nats per token)")
    interval = style.handle("bars: 90% of the fit", ls="none")
    return style.side_legend(figure, [*style.handles(looks, ls="none", ms=5), own, run, interval])
