"""The runs to do next: where they lie among those done, and how they narrow the goal."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.design.design import Design
from bss.plots import style


def design_figure(told: Design) -> Figure:
    """Left the runs done and the numbered ones to do; right the goal's interval after each.

    Left is batch against rate, or against tokens where rates do not vary. A check of the law is a
    square.
    """
    figure, (map_, steps) = style.panels(2, 3.0)
    done, rated = told.measured, told.measured.lr is not None
    y = done.lr if done.lr is not None else done.tokens
    map_.plot(done.batch_tokens, y, ".", ms=3, color=style.FAINT, label="done")
    for i, run in enumerate(told.runs):
        at = run.batch_tokens, run.lr if run.lr is not None else run.tokens
        mark = {"ls": "none", "marker": "s" if run.purpose == "check" else "o", "ms": 12}
        map_.plot(*at, **mark, color=style.INK)
        map_.annotate(str(i + 1), at, color="white", ha="center", va="center", fontsize=8)
    map_.set(xscale="log", yscale="log", xlabel="batch (tokens)")
    map_.set(ylabel="peak learning rate" if rated else "tokens")
    style.tokens_axis(map_.xaxis, most=5)
    style.panel_title(map_, "runs done and to do")
    _intervals(steps, told)
    return figure


def _intervals(ax: Axes, told: Design) -> None:
    """A bar for the interval now and after each run, downwards."""
    each = [told.before, *(run.after for run in told.runs)]
    for i, at in enumerate(each):
        ends = np.array([at.low, at.value, at.high], float)
        ax.plot(ends[::2], [i, i], color=style.INK, lw=4, solid_capstyle="butt")
        ax.plot(ends[1:2], [i], "o", ms=5, color="white", mec=style.INK)
    names = ["now", *(f"{i + 1}. {run.purpose}" for i, run in enumerate(told.runs))]
    ax.set_yticks(range(len(each)), names)
    ax.set(ylim=(len(each) - 0.5, -0.5), xlabel=told.goal)
    if told.quantity == "B_opt":
        ax.set(xscale="log", xlabel=f"{told.goal} (tokens)")
        style.tokens_axis(ax.xaxis, most=4)
    style.panel_title(ax, "expected 90% interval")
