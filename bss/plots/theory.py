"""The theory's figures: exact risks, catch-up, optimal schedules, exponents, the law."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.plots import style
from bss.theory.optimal import OptimalSchedule, sampled

Curve = tuple[np.ndarray, np.ndarray]

_POINTS: dict[str, Any] = {"linestyle": "", "markersize": 4.5, "markerfacecolor": "white"}
_BARE: dict[str, Any] = {"marker": ""}
_LOG_LOG: dict[str, Any] = {"xscale": "log", "yscale": "log"}
_SHARE = "share of the data consumed"
_BATCH = "batch (samples)"


def risk_figure(curves: Mapping[str, Curve]) -> Figure:
    """Plot excess risk against samples consumed, one named (data [N], risk [N]) per schedule."""
    figure, [[ax]] = style.new_figure(3.6)
    handles = _lines(ax, curves)
    ax.margins(x=0)
    ax.set(xlabel="samples consumed", ylabel="excess risk", yscale="log", xlim=(0, None))
    style.tokens_axis(ax.xaxis)
    style.count_axis(ax.yaxis)
    return style.side_legend(figure, handles)


def law_figure(
    panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray, Curve]]],
    clock: str = "intrinsic time",
) -> Figure:
    """Return the law as lines on the exact recursion as points, against intrinsic time or steps.

    Args:
        panels: a title to named (times [N], law [N], (times [K], exact [K])).
        clock: label of the x axis.
    """
    figure, axes = style.new_figure(3.4, columns=len(panels), sharey=True)
    handles = []
    for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
        handles = _lines(ax, {name: (t, law) for name, (t, law, _) in curves.items()})
        for name, look in style.lined_styles(curves).items():
            ax.plot(*curves[name][2], **(look | _POINTS))
        style.panel_title(ax, title, xlabel=clock, yscale="log")
        style.tokens_axis(ax.xaxis)
    axes[0, 0].set_ylabel("excess risk")
    style.count_axis(axes[0, 0].yaxis)
    return style.side_legend(figure, handles, "lines: law\npoints: exact")


def catch_up_figure(
    curves: Mapping[str, Curve], gaps: Mapping[str, Curve], theory: Mapping[str, float]
) -> Figure:
    """Fast catch-up: risks against steps, and the gap after the switch with its slope in theory.

    Args:
        curves: named (steps [N], risk [N]).
        gaps: named (steps since the switch [N], gap to the large batch [N]).
        theory: the slope of each gap.
    """
    figure, [[left, right]] = style.new_figure(3.4, columns=2)
    handles = _lines(left, curves)
    powers = {f"{n}, slope {theory[n]:.2f}": (gap, theory[n]) for n, gap in gaps.items()}
    handles += _powers(right, powers)
    style.panel_title(left, "at equal steps", xlabel="steps", ylabel="excess risk")
    labels: Any = {"xlabel": "steps since the switch", "ylabel": "gap to the large batch"}
    style.panel_title(right, "the gap closes", **labels)
    for ax in (left, right):
        ax.set(**_LOG_LOG)
        style.tokens_axis(ax.xaxis)
    style.count_axis(left.yaxis)
    return style.side_legend(figure, handles)


def optimal_figure(optima: Mapping[str, OptimalSchedule]) -> Figure:
    """Optimal batches by name: against the data consumed, and against the time that is left."""
    figure, [[left, right]] = style.new_figure(3.5, columns=2, sharey=True)
    samples = {name: sampled(best) for name, best in optima.items()}
    handles = _lines(left, {name: (share, batch) for name, (_, batch, share) in samples.items()})
    _lines(right, {name: (remaining, batch) for name, (remaining, batch, _) in samples.items()})
    left.set(xlabel=_SHARE, ylabel=_BATCH, yscale="log")
    style.tokens_axis(left.yaxis)
    right.set(xlabel="1 + intrinsic time left", xscale="log")
    right.invert_xaxis()
    style.tokens_axis(right.xaxis)
    return style.side_legend(figure, handles)


def exponents_figure(panels: Mapping[str, Mapping[str, tuple[Curve, float]]]) -> Figure:
    """Plot measured powers of the budget, and lines with the theory's slope through the last point.

    Args:
        panels: By name of the quantity, named ((budgets [N], values [N]), slope in theory).
    """
    figure, axes = style.new_figure(3.2, columns=len(panels))
    handles = []
    for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
        handles = _powers(ax, curves)
        style.panel_title(ax, title, xlabel="data budget $D$ (samples)", **_LOG_LOG)
        style.tokens_axis(ax.xaxis, most=4)
    return style.side_legend(figure, handles, "points: optimum\nlines: theory")


def _powers(ax: Axes, curves: Mapping[str, tuple[Curve, float]]) -> list[Any]:
    """Plot points, and a power of x through the last one; return their handles."""
    handles = []
    for name, look in style.lined_styles(curves).items():
        (x, y), slope = curves[name]
        handles += ax.plot(x, y, label=name, markevery=max(len(x) // 15, 1), **(look | _POINTS))
        ax.plot(x, y[-1] * (x / x[-1]) ** slope, linewidth=1.2, **(look | _BARE))
    return handles


def _lines(ax: Axes, curves: Mapping[str, Curve]) -> list[Any]:
    handles = []
    for name, look in style.lined_styles(curves).items():
        handles += ax.plot(*curves[name], linewidth=1.8, label=name, **(look | _BARE))
    return handles
