"""Plot fit residuals against each covariate."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.errors import InputError
from bss.laws.base import Fit
from bss.plots import style

BINS = 6  # groups of equal size at most, whose medians are drawn
EACH = 6  # rows of a group
SPREAD = 4.0  # ratio of largest to smallest from which an axis is logarithmic
FITTED = "#10375c"
LEFT_OUT = "#c2571a"


def residuals_figure(fit: Fit) -> Figure:
    """Plot measured minus fitted, and the residuals of left-out rows, if any.

    Lines are medians of groups of equal size: a trend shows what the law lacks.

    Raises:
        InputError: the fit has no residuals.
    """
    table = fit.residuals()
    table = table.loc[np.isfinite(table["residual"].to_numpy(float))]
    shown = {n: label for n, label in fit.RESIDUAL_AXES.items() if table[n].nunique() > 1}
    if not shown:
        raise InputError("residuals: nothing was fitted; there is nothing to plot")
    figure, axes = style.panels(len(shown), 2.6, beside=1.5)
    columns = {"residual": (FITTED, "fitted")}
    if "left_out" in table:
        columns["left_out"] = LEFT_OUT, "left out"
    for ax, (name, label) in zip(axes, shown.items(), strict=False):
        x = table[name].to_numpy(float)
        for column, (color, _) in columns.items():
            y = table[column].to_numpy(float)
            ax.plot(x, y, "o", ms=3, color=color, alpha=0.35, mec="none")
            ax.plot(*_medians(x, y), "-", lw=1.6, color=color)
        ax.axhline(0, color=style.INK, lw=0.8)
        positive = x[np.isfinite(x)]
        if positive.min() > 0 and positive.max() > SPREAD * positive.min():
            ax.set_xscale("log")
            style.tokens_axis(ax.xaxis, most=5)
        style.panel_title(ax, "", xlabel=label, ylabel=fit.RESIDUAL_UNIT)
    dots = {"ls": "none", "marker": "o", "ms": 4}
    entries = [style.handle(text, color=color, **dots) for color, text in columns.values()]
    entries.append(style.handle("median of a group", color=style.INK, lw=1.6))
    return style.side_legend(figure, entries, "measured minus fitted")


def _medians(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of x and y in groups of equal size along x."""
    known = pd.DataFrame({"x": x, "y": y}).dropna()
    order = known["x"].rank(method="dense")
    parts = known.groupby(np.ceil(order / order.max() * min(BINS, max(len(known) // EACH, 1))))
    return parts["x"].median().to_numpy(), parts["y"].median().to_numpy()
