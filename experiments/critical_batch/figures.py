"""Figures of critical batch sizes: designs, LR schedules, noise, data.

After Zhang et al. (arXiv 2410.21676) and McCandlish et al. (arXiv 1812.06162).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from bss.laws import CriticalFit
from bss.laws.power import PowerFit, predict
from bss.plots import style
from bss.plots.critical import SYMBOLS, curve_handles, draw_steps
from bss.units import format_tokens

_MARGIN = 1.5
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#c2571a", "marker": "s", "mfc": "#c2571a", "ls": "--"},
    {"color": "#666666", "marker": "o", "mfc": "white", "ls": ":"},
    {"color": "#10375c", "marker": "^", "mfc": "#10375c", "ls": "-"},
)
OTHER: dict[str, Any] = {"marker": "_", "ls": "none", "ms": 5, "mew": 0.7, "color": style.FAINT}


def steps_panels(fits: Mapping[str, CriticalFit]) -> Figure:
    """Draw relative steps against batch size, one panel per fit.

    Args:
        fits: Fits by title.
    """
    figure, axes = style.panels(len(fits), 3.4, beside=1.0)
    for ax, (title, fit) in zip(axes, fits.items(), strict=True):
        draw_steps(ax, fit)
        style.panel_title(ax, title)
        ax.legend(handles=curve_handles(fit), frameon=False, fontsize=7, loc="lower left")
        ax.set_ylim(bottom=ax.get_ylim()[0] / 4)
    style.share_log_ranges(axes)
    for ax in axes:
        style.batch_axis(ax.xaxis, most=6)
        style.count_axis(ax.yaxis)
    return figure


def schedules_figure(table: pd.DataFrame, noise: float) -> Figure:
    """Draw steps of each LR schedule relative to the first one, against batch size.

    Args:
        table: Columns schedule, batch, relative, and bound: "" for a measurement, "above" or
            "below" for a bound.
        noise: Standard deviation of the logarithm of a ratio, drawn as a band of ± 2.
    """
    figure, [[ax]] = style.new_figure(3.6)
    looks, entries, tips = style.named_styles(table["schedule"]), [], []
    if np.isfinite(noise):
        band = {"color": style.FAINT, "alpha": 0.18, "lw": 0, "label": "± 2 s.d. of seeds"}
        entries.append(ax.axhspan(*np.exp([-2 * noise, 2 * noise]), **band))
    ax.axhline(1, color=style.FAINT, lw=1)
    for i, (name, look) in enumerate(looks.items()):
        rows = table.loc[table["schedule"] == name].sort_values(by="batch")
        shift = 1.07 ** (i - (len(looks) - 1) / 2)
        at, relative = style.columns(rows, "batch", "relative")
        ax.plot(at * shift, relative, color=look["color"], lw=0.7, alpha=0.6)
        for x, y, side in zip(at * shift, relative, rows["bound"], strict=True):
            face = "white" if side else look["color"]
            ax.plot([x], [y], ls="none", ms=6, mec=look["color"], mfc=face, **look)
            if side:
                tips.append(y * (1.08 if side == "above" else 1 / 1.08))
                arrow = {"arrowstyle": "->", "color": look["color"]}
                ax.annotate("", (x, tips[-1]), (x, y), arrowprops=arrow)
    entries += style.handles(looks, ms=6, lw=0.7)
    if any(table["bound"]):
        entries.append(style.hollow("open, with an arrow: a bound"))
    ax.set_xlim(table["batch"].min() / _MARGIN, table["batch"].max() * _MARGIN)
    low, high = ax.get_ylim()
    ax.set_ylim(min([low, *(0.98 * tip for tip in tips)]), max([high, *(1.02 * t for t in tips)]))
    style.batch_axis(ax.xaxis, table["batch"])
    ax.set(xlabel="batch B (sequences)", ylabel=f"steps relative to\n{next(iter(looks))}")
    style.panel_title(ax, "schedules to one target")
    return style.side_legend(figure, entries)


def noise_figure(table: pd.DataFrame) -> Figure:
    """Draw the gradient noise scale of runs against b/a and the critical batch size of steps.

    Args:
        table: Columns batch, noise_scale, B_crit and cbs, in sequences.
    """
    figure, axes = style.new_figure(3.6, columns=2)
    looks = style.batch_styles(table["batch"])
    measured = {"B_crit": ("b/a of the steps", "b/a"), "cbs": ("critical batch", "critical batch")}
    for ax, (column, (label, title)) in zip(axes[0], measured.items(), strict=True):
        for batch, look in looks.items():
            rows = table.loc[table["batch"] == batch]
            ax.plot(rows[column], rows["noise_scale"], ls="none", ms=5, **look)
        x, y = style.columns(table, column, "noise_scale")
        ends = min(x.min(), y.min()) / _MARGIN, max(x.max(), y.max()) * _MARGIN
        ax.set(xscale="log", yscale="log", xlim=(x.min() / _MARGIN, x.max() * _MARGIN), ylim=ends)
        style.panel_title(ax, f"noise scale and {title}", xlabel=f"{label} (sequences)")
    style.share_log_ranges(axes[0])
    for ax in axes[0]:
        ax.axline((1, 1), (2, 2), color=style.FAINT, lw=1, ls="--", zorder=1)
        for axis in (ax.xaxis, ax.yaxis):
            style.batch_axis(axis)
    axes[0, 0].set_ylabel("gradient noise scale\nat the target (sequences)")
    entries = style.handles(looks, "B = {:g}", ls="none", ms=5)
    return style.side_legend(figure, [*entries, style.handle("equal", color=style.FAINT, ls="--")])


def data_figure(points: pd.DataFrame, laws: Mapping[str, PowerFit], sized: str) -> Figure:
    """Draw batch sizes in tokens against data: of every source, and of one by model size.

    Args:
        points: Table of `analysis.batches_by_source`.
        laws: Law of each source, drawn at the median model size.
        sized: Source of the right panel, its law drawn at each model size.
    """
    figure, (left, right) = style.panels(2, 3.9, beside=2.2)
    looks = dict(zip(points["source"].unique(), LOOKS, strict=False))
    other = points["definition"] != ""
    left.plot(points.loc[other, "tokens"], points.loc[other, "batch_tokens"], **OTHER)
    entries = []
    for source, look in looks.items():
        rows, law = points.loc[~other & (points["source"] == source)], laws[str(source)]
        _draw(left, rows, law, look)
        entries.append(style.handle(f"{source}\n{_powers(law)}", ms=5.5, lw=1.1, **look))
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


def _draw(ax: Axes, rows: pd.DataFrame, law: PowerFit, look: Mapping[str, Any]) -> None:
    """Draw batch sizes with intervals, and the law at the median model size."""
    x, y, low, high = style.columns(rows, "tokens", "batch_tokens", "low", "high")
    mark = {"mfc": look["color"], **look, "ls": "none", "mec": look["color"], "zorder": 4}
    ax.errorbar(x, y, np.nan_to_num(np.array([y - low, high - y])), lw=1, ms=5.5, **mark)
    data, middle = np.geomspace(x.min(), x.max(), 40), float(np.median(rows["params"]))
    at = [{"params": middle, "tokens": float(tokens)} for tokens in data]
    along = np.array([predict(law, where).value for where in at], float)
    ax.plot(data, along, color=look["color"], ls=look["ls"], lw=1.1, zorder=3)


def _powers(law: PowerFit) -> str:
    """Return the exponents as text, e.g. ∝ N^0.15·D^0.32."""
    pairs = zip(law.variables, law.exponents, strict=True)
    powers = (f"{SYMBOLS[name]}^{{{p.value:.2f}}}" for name, p in pairs)
    product = r"\,".join(powers)
    return rf"$\propto {product}$" + ("" if len(law.variables) > 1 else ", N with D")
