"""Figures of ramps from measurements: a noise scale with its batch sizes, and penalties."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.laws import BranchFit
from bss.laws.base import tails
from bss.plots import style

if TYPE_CHECKING:
    from bss.policies.from_noise import NoiseRamp

BATCH = "#c2571a"
CURVE = "#10375c"


def noise_figure(ramp: "NoiseRamp") -> Figure:
    """Return `plot_noise` as a figure without pyplot, for a file."""
    figure, [[ax]] = style.new_figure(4.0)
    plot_noise(ramp, ax)
    return figure


def plot_noise(ramp: "NoiseRamp", ax: Axes | None = None) -> Axes:
    """Plot the noise scale, its smooth curve with a band, and the batch size, against tokens.

    Args:
        ramp: The ramp.
        ax: Axes to draw on; by default a new figure of pyplot.
    """
    ax = style.axes_or_new(ax)
    curve = ramp.curve
    assert curve is not None
    ax.plot(ramp.rows["tokens"], ramp.rows["noise_scale"], "o", ms=2.5, color=style.FAINT)
    low, high = np.exp(np.quantile(curve.draws, tails(ramp.level), axis=0))
    ax.fill_between(curve.tokens, low, high, color=CURVE, alpha=0.16, lw=0)
    ax.plot(curve.tokens, np.exp(curve.values), color=CURVE, lw=1.4)
    unit = ramp.seq_len or 1
    first = float(ramp.rows["tokens"].min())
    last = float(ramp.rows["tokens"].max())
    starts = [first, *(max(start, first) for start in ramp.schedule.starts[1:]), last]
    sizes = [size * unit for size in ramp.schedule.batches]
    ax.plot(starts, [*sizes, sizes[-1]], ds="steps-post", color=BATCH, lw=2)
    for one in ramp.switches:
        if one.tokens.value is not None:
            ends = [max(end or first, first) for end in (one.tokens.low, one.tokens.high)]
            ax.plot(ends, [one.batch_tokens] * 2, color=BATCH, lw=5, alpha=0.35)
    ax.set_xscale("log")
    ax.set_xlim(first / 1.1, last * 1.1)
    style.batch_axis(ax.yaxis)
    style.tokens_axis(ax.xaxis)
    style.tokens_axis(ax.yaxis)
    label = {"xlabel": "tokens consumed", "ylabel": "noise scale, batch size (tokens)"}
    style.panel_title(ax, "batch size below the noise scale", **label)
    level = f"{ramp.level:.0%}"
    style.legend_beside(
        ax,
        [
            style.handle("measured", ls="none", marker="o", ms=3, color=style.FAINT),
            style.handle(f"smooth, {level} band", color=CURVE, lw=1.4),
            style.handle("batch size", color=BATCH, lw=2),
            style.handle(f"switch, {level} interval", color=BATCH, lw=5, alpha=0.35),
        ],
    )
    return ax


def draw_branches(ax: Axes, fit: BranchFit) -> None:
    """Penalty against tokens at the checkpoint: measured, smooth with a band, and the tolerance."""
    table = fit.penalties()
    looks = style.named_styles(one.factor for one in fit.grown)
    for one in fit.grown:
        look = looks[one.factor]
        here = table.loc[table["batch"] == one.batch]
        ax.plot(here["fork"], here["penalty"], ls="none", ms=4.5, mec="white", mew=0.4, **look)
        if one.batch not in fit.smooth_batches:
            continue
        curve = fit.curve(one.batch)
        low, high = np.quantile(curve.draws, tails(fit.level), axis=0)
        ax.fill_between(curve.tokens, low, high, color=look["color"], alpha=0.16, lw=0)
        ax.plot(curve.tokens, curve.values, color=look["color"], lw=1.2)
        if one.tokens.low and one.tokens.high:
            ends = [one.tokens.low, one.tokens.high]
            ax.plot(ends, [fit.tolerance] * 2, color=look["color"], lw=5, alpha=0.35)
    ax.axhline(fit.tolerance, color=style.INK, lw=1, ls="--")
    ax.axhline(0, color=style.FAINT, lw=0.8)
    ax.set_xlim(0, float(table["fork"].max()) * 1.05)
    style.tokens_axis(ax.xaxis)
    label = {"xlabel": "tokens at the checkpoint", "ylabel": "penalty of the batch size (nats)"}
    style.panel_title(ax, "branches with a larger batch size", **label)
    entries = style.handles(looks, "{:g} times the batch", ls="-", lw=1.2, ms=4.5)
    entries.append(style.handle(f"tolerance {fit.tolerance:g} nats", color=style.INK, ls="--"))
    if any(one.tokens.low and one.tokens.high for one in fit.grown):
        label_of = f"switch, {fit.level:.0%} interval"
        entries.append(style.handle(label_of, color=style.INK, lw=5, alpha=0.35))
    style.legend_beside(ax, entries)
