"""Critical batch sizes: how they are read from steps, and how they grow.

The figures of Zhang et al. (arXiv 2410.21676) with intervals, and exponents of linear regression. N
and D are shown in millions, B in the unit of the fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.errors import InputError
from bss.laws import CriticalFit
from bss.laws.critical.values import NAMES
from bss.laws.power import PowerFit, predict
from bss.plots import style
from bss.theory.critical import CriticalTable

OURS = "#10375c"
PUBLISHED = "#c2571a"
AXES = {"params": "non-embedding parameters N", "tokens": "training tokens D"}
SYMBOLS = {"params": "N", "tokens": "D"}
_PUBLISHED: dict[str, Any] = {"color": PUBLISHED, "lw": 1.3, "ls": "--"}


def critical_figure(fit: CriticalFit) -> Figure:
    """Plot steps against batch size with the definition, and critical batch size against N or D."""
    figure, [[left, right]] = style.new_figure(3.5, columns=2)
    draw_steps(left, fit)
    name = next((name for name in SYMBOLS if name in fit.laws), None)
    if name is None:
        right.set_axis_off()
        return style.side_legend(figure, curve_handles(fit))
    draw_law(right, fit, name)
    return style.side_legend(figure, [*curve_handles(fit), *law_handles(fit.level)])


def relative_steps(fit: CriticalFit) -> Figure:
    """Steps relative to the reference batch, against the batch."""
    figure, [[ax]] = style.new_figure(3.6)
    draw_steps(ax, fit)
    return style.side_legend(figure, curve_handles(fit))


def definition_figure(fit: CriticalFit, model: str) -> Figure:
    """Plot the definition of the critical batch size on one curve: linear scaling and the overhead.

    Args:
        fit: fitted critical batches.
        model: the curve to draw, by its model's name.

    Raises:
        InputError: If the model does not exist, or its critical batch size is not resolved.
    """
    fitted = next((at for at in fit.fits if at.curve.model == model), None)
    if fitted is None or fitted.cbs.value is None or fitted.S_min.value is None:
        known = ", ".join(at.curve.model for at in fit.fits if at.cbs.value is not None)
        raise InputError(f"model: {model!r} has no critical batch; choose one of {known}")
    figure, [[ax]] = style.new_figure(3.6)
    curve = fitted.curve
    cbs = fitted.cbs.value
    batch = np.geomspace(curve.batch[0] / 1.3, curve.batch[-1] * 1.3, 300)
    S_ref, S_cbs = fitted.steps(np.array([fitted.reference, cbs]))
    linear = S_ref * fitted.reference / batch
    ax.plot(batch, fitted.steps(batch), color=OURS, lw=1.6, label="S = a + b/B")
    ax.plot(curve.batch, curve.steps, "o", color=style.INK, ms=5, label="measured")
    ax.plot(batch, linear, color=style.FAINT, lw=1.2, ls="--", label="linear scaling")
    allowed = f"{1 + fit.overhead:g} × linear scaling"
    ax.plot(batch, (1 + fit.overhead) * linear, color=PUBLISHED, lw=1.2, ls=":", label=allowed)
    ax.axhline(fitted.S_min.value, color=style.FAINT, lw=0.8, label="$S_{min}$ = a")
    ax.plot([fitted.reference], [S_ref], "s", mfc="white", mec=style.INK, ms=7, label="reference")
    ax.plot([cbs], [S_cbs], "D", color=PUBLISHED, ms=7, label=f"critical batch {cbs:,.0f}")
    if fitted.cbs.low and fitted.cbs.high:
        ends = (fitted.cbs.low, fitted.cbs.high)
        label = f"its {fitted.cbs.level:.0%} interval"
        ax.axvspan(*ends, color=PUBLISHED, alpha=0.15, lw=0, label=label)
    _log_axes(ax, batch, (fitted.S_min.value / 2, float(curve.steps.max()) * 1.5))
    ax.set(xlabel=f"batch B ({fit.unit})", ylabel="steps to the target S")
    style.panel_title(ax, f"{style.named(model)}: what is critical")
    return style.side_legend(figure, ax.get_legend_handles_labels()[0])


def laws_figure(
    fits: Mapping[str, CriticalFit],
    forecasts: Mapping[str, Sequence[float]] | None = None,
    published: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Critical batch against N and against D: a panel for each law in one variable.

    Panels share the range of the batch.

    Args:
        fits: by the title of their panels.
        forecasts: by variable ("params", "tokens"), sizes to extend the law to.
        published: by variable, (coefficient, exponent) of another law to draw; x in the same unit.

    Raises:
        InputError: no fit has a law in one variable.
    """
    panels = [
        (title, fit, name) for title, fit in fits.items() for name in SYMBOLS if name in fit.laws
    ]
    if not panels:
        raise InputError("fits: no law in one variable to draw; see their warnings")
    figure, axes = style.panels(len(panels), 3.1, beside=1.8, sharey=True)
    for ax, (title, fit, name) in zip(axes, panels, strict=True):
        draw_law(ax, fit, name, (forecasts or {}).get(name, ()), title)
        if published and name in published:
            coefficient, exponent = published[name]
            x = np.array(ax.get_xlim())
            ax.plot(x, coefficient * (x / fit.laws[name].unit) ** exponent, **_PUBLISHED)
    style.count_axis(axes[0].yaxis)
    published_law = [style.handle("published law", **_PUBLISHED)] if published else []
    return style.side_legend(figure, [*law_handles(panels[0][1].level), *published_law])


def least_squares_figure(tables: Mapping[str, CriticalTable]) -> Figure:
    """Exact critical batches of least squares against D, with the slopes of theory.

    Args:
        tables: by the name of their task.
    """
    figure, [[ax]] = style.new_figure(3.6)
    entries = []
    for name, look in style.named_styles(tables).items():
        table = tables[name]
        data = np.array([point.data for point in table.points], float)
        cbs = np.array([point.cbs for point in table.points])
        ax.plot(data, cbs, ls="none", ms=5.5, **look)
        ax.plot(data, cbs[-1] * (data / data[-1]) ** table.theory, color=look["color"], lw=1)
        label = f"{name}: {table.exponent:.3f}, theory {table.theory:.3f}"
        entries.append(style.handle(label, lw=1, ms=5.5, **look))
    ax.set(xscale="log", yscale="log")
    style.batch_axis(ax.xaxis)
    style.batch_axis(ax.yaxis)
    ax.set(xlabel="samples D", ylabel="critical batch (samples)")
    style.panel_title(ax, "least squares, exact")
    return style.side_legend(figure, entries, "exponent at the last budgets")


def draw_steps(ax: Axes, fit: CriticalFit) -> None:
    """Relative steps of every curve on axes: points, their law, a diamond at the critical batch."""
    batches = np.concatenate([at.curve.batch for at in fit.fits])
    grid = np.geomspace(batches.min() / 1.2, batches.max() * 1.2, 300)
    lowest = 1.0
    reference = fit.fits[0].reference
    for at, look in zip(fit.fits, _looks(fit), strict=True):
        curve = at.curve
        fitted = at.S_min.value is not None and at.status == "converged"
        between = np.interp(np.log(at.reference), np.log(curve.batch), np.log(curve.steps))
        scale = float(at.steps(np.array(at.reference)) if fitted else np.exp(between))
        scale *= at.reference / reference
        relative = curve.steps / scale
        ax.plot(curve.batch, relative, ls="none", ms=4.5, mec="white", mew=0.4, **look)
        lowest = min(lowest, relative.min())
        if fitted:
            ax.plot(grid, at.steps(grid) / scale, color=look["color"], lw=1.2)
        if fitted and at.cbs.value is not None:
            y = float(at.steps(np.array(at.cbs.value))) / scale
            ax.plot([at.cbs.value], [y], "D", ms=6.5, mfc="none", mec=look["color"], mew=1.3)
    ax.plot(grid, reference / grid, color=style.FAINT, lw=1, ls="--", zorder=1)
    _log_axes(ax, grid, (lowest / 1.6, reference / batches.min() * 1.4))
    label = f"steps relative to linear scaling at B = {reference:.4g}"
    ax.set(xlabel=f"batch B ({fit.unit})", ylabel=label)
    style.panel_title(ax, "steps to the target")


def draw_law(
    ax: Axes, fit: CriticalFit, name: str, forecasts: Sequence[float] = (), title: str = ""
) -> None:
    """Critical batches with intervals on axes, the law in `name` alone, its prediction band."""
    law = fit.laws[name]
    sizes = [getattr(at.curve, name) for at in fit.fits]
    ends = [(cbs.value, cbs.low, cbs.high) for cbs in fit.critical]
    look = {"marker": "o", "color": style.INK, "linestyle": "none"}
    style.bars(ax, [np.array(sizes), *np.array(ends, float).T], look)
    grid = np.geomspace(min(sizes) / 1.5, max([*sizes, *forecasts]) * 1.5, 60)
    line = [predict(law, {name: float(x)}) for x in grid]
    ax.plot(grid, [at.value or np.nan for at in line], color=OURS, lw=1.5)
    if law.margin is not None:
        low = np.array([at.low for at in line], float)
        high = np.array([at.high for at in line], float)
        ax.fill_between(grid, low, high, color=OURS, alpha=0.12, lw=0)
    for x in forecasts:
        forecast = predict(law, {name: x})
        if forecast.value is not None:
            ax.plot([x], [forecast.value], "D", mfc="white", mec=OURS, ms=6, mew=1.3)
    ax.set(xscale="log", yscale="log", xlim=(grid[0], grid[-1]))
    style.tokens_axis(ax.xaxis, most=4)
    style.count_axis(ax.yaxis)
    label = f"critical batch, {NAMES[fit.quantity]} ({fit.unit})"
    style.panel_title(ax, title or law_title(law), xlabel=AXES[name], ylabel=label)
    if title:
        ax.text(0.03, 0.95, law_title(law), transform=ax.transAxes, va="top", fontsize=style.SMALL)


def law_title(law: PowerFit) -> str:
    """Return a law in one variable with its interval, as a title."""
    p = law.exponents[0]
    symbol = SYMBOLS[law.variables[0]]
    between = f" ({p.low:.2f}–{p.high:.2f})" if p.low is not None and p.high is not None else ""
    return f"{law.coefficient.value:.3g}·{symbol}^{p.value:.3f}{between}"


def _looks(fit: CriticalFit) -> list[dict[str, Any]]:
    return list(style.batch_styles(range(len(fit.fits))).values())


def curve_handles(fit: CriticalFit) -> list[Line2D]:
    """Handles and labels for a legend of `draw_steps`."""
    models = zip(fit.fits, _looks(fit), strict=True)
    return [
        *(style.handle(style.named(at.curve.model), lw=1.2, ms=4.5, **look) for at, look in models),
        style.handle("critical batch", ls="none", marker="D", mfc="none", mec=style.INK),
        style.handle("linear scaling", color=style.FAINT, ls="--"),
    ]


def law_handles(level: float) -> list[Line2D]:
    """Entries of a legend for what `draw_law` draws, with intervals of a level."""
    measured = f"by S = a + b/B,\nwith {level:.0%} interval"
    law = f"power law; shaded, the {level:.0%}\ninterval of a new value"
    return [
        style.handle(measured, marker="o", ms=5, color=style.INK, lw=1),
        style.handle(law, color=OURS, lw=1.5),
    ]


def _log_axes(ax: Axes, x: np.ndarray, y: tuple[float, float]) -> None:
    ax.set(yscale="log", xlim=(float(x.min()), float(x.max())), ylim=y)
    style.batch_axis(ax.xaxis, most=6)
    style.count_axis(ax.yaxis)
