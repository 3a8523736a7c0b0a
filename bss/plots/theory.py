"""The theory's figures: exact risks, switch points, catch-up, optimal schedules, the law."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.plots import style
from bss.theory.optimal import OptimalSchedule, sampled
from bss.theory.switch import Switch

Curve = tuple[np.ndarray, np.ndarray]

# Lightness falls from look to look, and so do line and marker differ: readable in grey.
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#10375c", "linestyle": "-", "marker": "o"},
    {"color": "#c2571a", "linestyle": "--", "marker": "s"},
    {"color": "#4f9a7f", "linestyle": "-.", "marker": "D"},
    {"color": "#b58fc4", "linestyle": ":", "marker": "^"},
    {"color": "#c9b13c", "linestyle": (0, (6, 1, 1, 1, 1, 1)), "marker": "v"},
)
_POINTS: dict[str, Any] = {"linestyle": "", "markersize": 4.5, "markerfacecolor": "white"}
_LOG_LOG: dict[str, Any] = {"xscale": "log", "yscale": "log"}
_BATCH = "batch (samples)"
_WIDE = 2000.0  # a range of batches beyond which powers of 2 are no help


def risk_figure(curves: Mapping[str, Curve], *, log_data: bool = True) -> Figure:
    """Excess risk against samples consumed, one named (data [N], risk [N]) curve per schedule.

    Args:
        curves: by name.
        log_data: on a logarithmic axis; late switches show better on a linear one.
    """
    figure, [[ax]] = style.new_figure(3.6)
    handles = _lines(ax, curves)
    ax.set(xlabel="samples consumed", ylabel="excess risk", **_LOG_LOG)
    ax.margins(x=0)
    if not log_data:
        ax.set(xscale="linear", xlim=(0, None))
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
        for look, (_, _, (times, exact)) in zip(_LOOKS, curves.values(), strict=False):
            ax.plot(times, exact, **(look | _POINTS))
        style.panel_title(ax, title, xlabel=clock, yscale="log")
        style.tokens_axis(ax.xaxis)
    axes[0, 0].set_ylabel("excess risk")
    style.count_axis(axes[0, 0].yaxis)
    return style.side_legend(figure, handles, "lines: law\npoints: exact")


def switch_figure(switches: Mapping[str, Sequence[Switch]], theory: Mapping[str, float]) -> Figure:
    """D − P*, the data after the best switch, against the budget D, with the theory's slopes.

    A line of the theory's slope passes through the last budget of its task.
    """
    figure, [[ax]] = style.new_figure(3.8)
    handles = []
    for look, (name, of_task) in zip(_LOOKS, switches.items(), strict=False):
        data = np.array([s.data for s in of_task], np.float64)
        after = data - [s.switch_data for s in of_task]
        handles += ax.plot(data, after, label=name, **_marks(look))
        label = f"slope {theory[name]:.3f} of the theory"
        line = _slope(data, after, theory[name])
        handles += ax.plot(data, line, linewidth=1.4, label=label, **_line(look))
    ax.set(xlabel="data budget $D$ (samples)", **_LOG_LOG)
    ax.set_ylabel("data after the best switch, $D - P^*$")
    for axis in (ax.xaxis, ax.yaxis):
        style.tokens_axis(axis)
    return style.side_legend(figure, handles)


def catch_up_figure(
    curves: Mapping[str, Curve], gaps: Mapping[str, Curve], theory: Mapping[str, float]
) -> Figure:
    """Fast catch-up: risks against steps, and the gap after the switch against its slope.

    Args:
        curves: named (steps [N], risk [N]).
        gaps: named (steps since the switch [N], gap to the large batch [N]).
        theory: the slope of each gap.
    """
    figure, [[left, right]] = style.new_figure(3.4, columns=2)
    handles = _lines(left, curves)
    style.panel_title(left, "at equal steps", xlabel="steps", ylabel="excess risk", **_LOG_LOG)
    style.tokens_axis(left.xaxis)
    style.count_axis(left.yaxis)
    first = len(curves)
    for look, (name, (steps, gap)) in zip(_LOOKS[first:], gaps.items(), strict=False):
        line = _slope(steps, gap, theory[name])
        right.plot(steps, line, color=style.INK, linewidth=1)
        handles += right.plot(steps, gap, markevery=4, label=name, **(look | _POINTS))
        label, at = f"slope −{-theory[name]:.2f}", (steps[0], line[0])
        look = {"fontsize": 8, "color": style.INK}
        right.annotate(label, at, (10, 6), textcoords="offset points", **look)
    right.margins(y=0.1)
    right.set(xlabel="steps since the switch", ylabel="gap to the large batch", **_LOG_LOG)
    style.panel_title(right, "the gap closes")
    style.tokens_axis(right.xaxis)
    return style.side_legend(figure, handles)


def optimal_figure(optima: Mapping[str, OptimalSchedule]) -> Figure:
    """Optimal batches by name: against the data consumed, and against the time that is left."""
    figure, [[left, right]] = style.new_figure(3.5, columns=2, sharey=True)
    samples = {name: sampled(best) for name, best in optima.items()}
    handles = _lines(left, {name: (share, batch) for name, (_, batch, share) in samples.items()})
    _lines(right, {name: (remaining, batch) for name, (remaining, batch, _) in samples.items()})
    left.set_yscale("log")
    low, high = left.get_ylim()
    (style.tokens_axis if high / low > _WIDE else style.batch_axis)(left.yaxis)
    left.set(xlabel="share of the data consumed", ylabel=_BATCH)
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
        handles = []
        for look, (name, ((data, values), slope)) in zip(_LOOKS, curves.items(), strict=False):
            handles += ax.plot(data, values, markersize=4.5, label=name, **_marks(look))
            ax.plot(data, _slope(data, values, slope), linewidth=1.2, **_line(look))
        style.panel_title(ax, title, xlabel="data budget $D$ (samples)", **_LOG_LOG)
        style.tokens_axis(ax.xaxis, most=4)
    return style.side_legend(figure, handles, "points: optimum\nlines: theory")


def family_figure(members: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """Schedules of one ratio of batch to rate, which lose and consume alike.

    Args:
        members: by name, (share of the data consumed [N], batch sizes [N], LRs [N]).
    """
    figure, [[left, right]] = style.new_figure(3.3, columns=2)
    handles = _lines(left, {name: (share, batch) for name, (share, batch, _) in members.items()})
    _lines(right, {name: (share, rate) for name, (share, _, rate) in members.items()})
    for ax, label in ((left, _BATCH), (right, "learning rate")):
        ax.set(xlabel="share of the data consumed", ylabel=label, yscale="log")
    style.batch_axis(left.yaxis)
    style.count_axis(right.yaxis)
    return style.side_legend(figure, handles)


def _line(look: Mapping[str, Any]) -> dict[str, Any]:
    return {**look, "marker": ""}


def _marks(look: Mapping[str, Any]) -> dict[str, Any]:
    return {**look, "linestyle": ""}


def _slope(x: np.ndarray, y: np.ndarray, exponent: float) -> np.ndarray:
    """Return a power of x through the last point."""
    return y[-1] * (x / x[-1]) ** exponent


def _lines(ax: Axes, curves: Mapping[str, Curve]) -> list[Any]:
    handles = []
    for look, (name, curve) in zip(_LOOKS, curves.items(), strict=False):
        handles += ax.plot(*curve, linewidth=1.8, label=name, **_line(look))
    return handles
