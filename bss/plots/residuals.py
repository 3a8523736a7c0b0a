"""What a fit misses, against what may explain it: a panel for each."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.laws.base import Fit
from bss.plots import style

BINS = 6  # parts of equal count at most, whose medians show what is common
EACH = 6  # rows of a part
SPREAD = 8.0  # a range from which an axis is logarithmic
SEEN, UNSEEN = "#10375c", "#c2571a"


def residuals_figure(fit: Fit) -> Figure:
    """Plot the residuals of a fit, and of cross-validation if the fit has them, against its axes.

    The lines are medians of parts of equal count: a median away from 0 is a lack of fit.
    """
    table = fit.residuals()
    table = table.loc[np.isfinite(table["residual"])]
    shown = {n: x for n, x in fit.RESIDUAL_AXES.items() if table[n].nunique() > 1}
    figure, axes = style.panels(max(len(shown), 1), 2.6, beside=1.5)
    columns = {"residual": (SEEN, "of the law")}
    if "left_out" in table:
        columns["left_out"] = UNSEEN, "not seen"
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
    entries = [
        style.handle(text, color=color, marker="o", ms=4, lw=1.6)
        for color, text in columns.values()
    ]
    return style.side_legend(figure, entries, "measured less fitted")


def _medians(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    known = pd.DataFrame({"x": x, "y": y}).dropna()
    order = known["x"].rank(method="dense")
    parts = known.groupby(np.ceil(order / order.max() * min(BINS, max(len(known) // EACH, 1))))
    return parts["x"].median().to_numpy(), parts["y"].median().to_numpy()
