"""Best and critical batches of several sources on the same axes, against data."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from bss.laws.fitting.power import PowerLaw, predict
from bss.plots import style
from bss.units import format_tokens

LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#c2571a", "marker": "s", "mfc": "#c2571a", "ls": "--"},
    {"color": "#666666", "marker": "o", "mfc": "white", "ls": ":"},
    {"color": "#10375c", "marker": "^", "mfc": "#10375c", "ls": "-"},
)
OTHER: dict[str, Any] = {"marker": "_", "ls": "none", "ms": 5, "mew": 0.7, "color": style.FAINT}


def data_figure(points: pd.DataFrame, laws: Mapping[str, PowerLaw], sized: str) -> Figure:
    """Batches in tokens against data: of every source, and of one of them by model size.

    Args:
        points: source, params, tokens, batch_tokens, low, high and `definition`, empty but for
            critical batches by other definitions, which are drawn small.
        laws: of each source; drawn at the median model size.
        sized: the source whose model sizes are told apart, its law drawn at each.
    """
    figure, (left, right) = style.panels(2, 3.9, beside=2.2)
    looks = dict(zip(points["source"].unique(), LOOKS, strict=False))
    other = points["definition"] != ""
    left.plot(points.loc[other, "tokens"], points.loc[other, "batch_tokens"], **OTHER)
    entries = []
    for source, look in looks.items():
        rows, law = points.loc[~other & (points["source"] == source)], laws[str(source)]
        _draw(left, rows, law, look)
        entries.append(style.handle(f"{source}\n{_told(law)}", ms=5.5, lw=1.1, **look))
    entries.append(style.handle("critical by another\ndefinition", **OTHER))
    rows = points.loc[~other & (points["source"] == sized)]
    sizes = style.named_styles(sorted(rows["params"].unique()))
    for params, look in sizes.items():
        _draw(right, rows.loc[rows["params"] == params], laws[sized], {"ls": "-", **look})
        name = f"N = {format_tokens(int(float(f'{params:.3g}')))}"
        entries.append(style.handle(name, ms=5.5, lw=1.1, **look))
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="training tokens D")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(LogLocator(numticks=9))
        axis.set_minor_locator(NullLocator())
    for axis in (right.xaxis, right.yaxis):
        style.tokens_axis(axis)
    left.set_ylabel("batch in tokens")
    style.panel_title(left, "every source")
    style.panel_title(right, sized)
    return style.side_legend(figure, entries)


def _draw(ax: Axes, rows: pd.DataFrame, law: PowerLaw, look: Mapping[str, Any]) -> None:
    """Batches with their intervals, and the law at the median model size."""
    x, y, low, high = style.columns(rows, "tokens", "batch_tokens", "low", "high")
    mark = {"mfc": look["color"], **look, "ls": "none", "mec": look["color"], "zorder": 4}
    ax.errorbar(x, y, np.nan_to_num(np.array([y - low, high - y])), lw=1, ms=5.5, **mark)
    data, middle = np.geomspace(x.min(), x.max(), 40), float(np.median(rows["params"]))
    at = [{"params": middle, "tokens": float(tokens)} for tokens in data]
    along = np.array([predict(law, where).value for where in at], float)
    ax.plot(data, along, color=look["color"], ls=look["ls"], lw=1.1, zorder=3)


def _told(law: PowerLaw) -> str:
    """The exponents, as ∝ N^0.15·D^0.32."""
    symbols = {"params": "N", "tokens": "D"}
    pairs = zip(law.variables, law.exponents, strict=True)
    powers = (f"{symbols[name]}^{{{p.value:.2f}}}" for name, p in pairs)
    product = r"\,".join(powers)
    return rf"$\propto {product}$" + ("" if len(law.variables) > 1 else ", N with D")
