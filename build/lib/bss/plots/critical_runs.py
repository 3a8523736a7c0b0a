"""Measured runs around the critical batch: designs side by side, schedules, the noise scale.

After Zhang et al. (arXiv 2410.21676) and McCandlish et al. (arXiv 1812.06162).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.laws import CriticalFit
from bss.plots import style
from bss.plots.critical import curve_handles, draw_steps

_MARGIN = 1.5


def steps_panels(fits: Mapping[str, CriticalFit]) -> Figure:
    """Relative steps against the batch, a panel with its own legend for each fit.

    Args:
        fits: by the title of their panels.
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
    """Steps of each learning-rate schedule over those of the first one, against the batch.

    Args:
        table: rows with schedule, batch, relative, and bound: "" where the steps are measured,
            "above" or "below" where they are a bound.
        noise: standard deviation of the logarithm of a ratio, shown twice about 1.
    """
    figure, [[ax]] = style.new_figure(3.6)
    looks, entries, tips = style.named_styles(table["schedule"]), [], []
    if np.isfinite(noise):
        band = {"color": style.FAINT, "alpha": 0.18, "lw": 0, "label": "± 2 s.d. of seeds"}
        entries.append(ax.axhspan(*np.exp([-2 * noise, 2 * noise]), **band))
    ax.axhline(1, color=style.FAINT, lw=1)
    for i, (name, look) in enumerate(looks.items()):
        rows = table.loc[table["schedule"] == name].sort_values(by="batch")
        beside = 1.07 ** (i - (len(looks) - 1) / 2)
        at, relative = style.columns(rows, "batch", "relative")
        ax.plot(at * beside, relative, color=look["color"], lw=0.7, alpha=0.6)
        for x, y, side in zip(at * beside, relative, rows["bound"], strict=True):
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
    ax.set(xlabel="batch B (sequences)", ylabel=f"steps over those of\n{next(iter(looks))}")
    style.panel_title(ax, "schedules to one target")
    return style.side_legend(figure, entries)


def noise_figure(table: pd.DataFrame) -> Figure:
    """The gradient noise scale in runs against the critical batches that steps give.

    Args:
        table: rows with batch, noise_scale, B_crit and cbs, all in sequences.
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
