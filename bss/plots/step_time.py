"""Tokens, time and cost to a target loss against the batch size, by seconds per step."""

import numpy as np
from matplotlib.figure import Figure

from bss.laws import EsFit
from bss.laws.base import tails
from bss.laws.step_time import CRITERIA, StepTime, best_batches, by_criterion
from bss.plots import style

LABELS: dict[str, str] = {"tokens": "tokens", "time": "hours", "cost": "cost"}


def time_figure(
    fit: EsFit, step_time: StepTime, price: float = 1.0, target_loss: float | None = None
) -> Figure:
    """Plot tokens, time and cost to a target against the batch size, with intervals.

    A diamond marks the best batch size of each panel, and a bar below it the interval of that batch
    size. Grey dots are the tokens of the runs. The cost is left out if it is proportional to the
    time.

    Args:
        fit: E(S).
        step_time: seconds per step.
        price: Price of a device-hour.
        target_loss: one of the targets of the fit, in nats; by default the lowest.
    """
    loss = fit.fits[-1].target_loss if target_loss is None else target_loss
    batch, curves = by_criterion(fit, loss, step_time, price)
    best = best_batches(fit, loss, step_time, price).set_index("criterion")
    every = fit.residuals()
    rows = every[np.isclose(every["target_loss"], loss)]
    varied = len(set(step_time.devices)) > 1
    shown = [name for name in CRITERIA if name != "cost" or varied]
    figure, axes = style.new_figure(3.1, columns=len(shown))
    for ax, name in zip(axes[0], shown, strict=True):
        values = curves[name]
        if name == "tokens":
            ax.plot(rows["batch"], rows["measured"], ".", color=style.FAINT, ms=6, zorder=1)
        ax.plot(batch, values[:, 0], color=style.INK, lw=1.5)
        if values.shape[1] > 1:
            ends = np.quantile(values[:, 1:], tails(fit.level), axis=1)
            ax.fill_between(batch, *ends, color=style.INK, alpha=0.12, lw=0)
        row = best.loc[name]
        ax.plot([row["batch"]], [row[LABELS[name]]], "D", ms=6, mfc="white", mec="#c2571a")
        if row["low"]:
            foot = [ax.get_ylim()[0]] * 2
            ax.plot([row["low"], row["high"]], foot, color="#c2571a", lw=4, solid_capstyle="butt")
        ax.set(xscale="log", yscale="log")
        style.batch_axis(ax.xaxis, most=6)
        style.tokens_axis(ax.yaxis, most=4)
        title = f"{LABELS[name]} to {loss:.4g} nats"
        style.panel_title(ax, title, xlabel="batch B (sequences)", ylabel=LABELS[name])
    entries = [
        style.handle("a run", marker=".", ls="none", color=style.FAINT, ms=6),
        style.handle(f"fit, with {fit.level:.0%} band", color=style.INK, lw=1.5),
        style.handle("best batch size;\nbar: its interval", marker="D", ls="none", mfc="white",
                     mec="#c2571a"),
    ]  # fmt: skip
    return style.side_legend(figure, entries)
