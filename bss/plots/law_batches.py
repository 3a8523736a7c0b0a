"""The batches that laws E(S) call for, against the target loss."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.laws import EsFit
from bss.plots import style


def batch_against_loss(fits: Mapping[str, EsFit]) -> Figure:
    """B_opt and B_min of each law against the target loss, with their intervals.

    Only what a design identifies is a point; a bound on one side is an arrow, and what is not
    known at all is counted above the panel. A law that has neither is not shown.

    Args:
        fits: fitted laws by name.
    """
    figure, axes = style.new_figure(3.3, columns=2, sharex=True)
    names = "B_opt", "B_min"
    shown = {law: fit for law, fit in fits.items() if set(names) & set(fit.law.batches)}
    looks = style.law_styles(shown)
    for ax, name in zip(axes[0], names, strict=True):
        notes = []
        for i, (law, fit) in enumerate(shown.items()):
            if name not in fit.law.batches:
                continue
            missing = _draw_batches(ax, looks[law], fit, name, i - (len(shown) - 1) / 2)
            if missing:
                notes.append(f"{law}: none at {missing} of {len(fit.fits)}")
        symbol = f"${name[0]}_{{{name[2:]}}}$"
        style.panel_title(ax, symbol, "; ".join(notes))
        ax.set_yscale("log", base=2)
        label = "target loss (nats per token), falling →"
        ax.set(xlabel=label, ylabel=f"{symbol} (sequences)")
        _limit_batches(ax, shown, name)
        style.batch_axis(ax.yaxis)
    losses = [found.target_loss for fit in shown.values() for found in fit.fits]
    if losses:
        margin = 0.08 * (max(losses) - min(losses)) or 0.1
        axes[0, 0].set_xlim(max(losses) + margin, min(losses) - margin)
    bound = style.handle("one-sided bound", color=style.INK, marker=r"$\uparrow$", ls="none", ms=8)
    return style.side_legend(figure, [*style.handles(looks, ms=5), bound])


def _draw_batches(ax: Axes, look: dict[str, Any], fit: EsFit, name: str, shift: float) -> int:
    """Draw one law's estimates; returns at how many targets nothing is known."""
    losses = [found.target_loss for found in fit.fits]
    dodge = 0.025 * shift * (max(losses) - min(losses) or 1.0)
    at, values, errors, missing = [], [], [], 0
    for found in fit.fits:
        estimate = found.batches.get(name)
        x = found.target_loss + dodge
        if found.status != "converged" or estimate is None:
            missing += 1
        elif estimate.value is not None:
            low = estimate.value if estimate.low is None else estimate.low
            high = estimate.value if estimate.high is None else estimate.high
            at.append(x)
            values.append(estimate.value)
            errors.append((estimate.value - low, high - estimate.value))
        elif estimate.low is not None:
            _bound(ax, x, estimate.low, 1, look["color"])
        elif estimate.high is not None:
            _bound(ax, x, estimate.high, -1, look["color"])
        else:
            missing += 1
    if at:
        spread = np.maximum(np.array(errors).T, 0)
        ax.errorbar(at, values, yerr=spread, capsize=3, lw=1.4, elinewidth=1, ms=5.5, **look)
    return missing


def _bound(ax: Axes, x: float, value: float, sign: int, colour: str) -> None:
    ax.plot([x], [value], marker="_", ms=8, color=colour, linestyle="none")
    ax.annotate(
        "", (x, value), xytext=(0, 18 * sign), textcoords="offset points",
        arrowprops={"arrowstyle": "<|-", "color": colour, "lw": 1.1},
    )  # fmt: skip


def _limit_batches(ax: Axes, fits: Mapping[str, EsFit], name: str) -> None:
    """From below the lowest to above the highest value or bound; long intervals may leave it."""
    known = [
        number
        for fit in fits.values()
        for found in fit.fits
        if found.status == "converged" and (estimate := found.batches.get(name)) is not None
        for number in (estimate.value, *(() if estimate.value else (estimate.low, estimate.high)))
        if number
    ]
    if known:
        ax.set_ylim(min(known) / 3, max(known) * 3)
    else:
        ax.set_ylim(1, 16)
        ax.text(0.5, 0.5, "unidentified", transform=ax.transAxes, ha="center", color=style.FAINT)
