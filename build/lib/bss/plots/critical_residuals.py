"""What S = a + b/B misses: residuals of steps to a target against the batch, curve by curve."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from bss.laws.critical.values import CriticalBatch
from bss.plots import style


def residuals_figure(groups: Mapping[str, Sequence[CriticalBatch]]) -> Figure:
    """Measured steps over those of the law, against the batch over b/a: a panel for each group.

    Curves of one model and sequence length look alike. Shaded is what seeds alone do, where a
    group has more than one: a standard deviation of one step count, the mean over curves.

    Args:
        groups: curves by the title of their panel.
    """
    figure, axes = style.panels(len(groups), 3.3, beside=1.8, sharey=True)
    entries: list[Artist] = [style.handle("S = a + b/B", color=style.INK, lw=1)]
    looks = style.named_styles(_cell(at) for curves in groups.values() for at in curves)
    for ax, (title, curves) in zip(axes, groups.items(), strict=True):
        for at in curves:
            if at.B_crit.value is not None:
                off = 100 * np.expm1(at.residuals)
                ax.plot(at.curve.batch / at.B_crit.value, off, lw=1, ms=4, **looks[_cell(at)])
        seeds = [at.curve.seed_noise for at in curves if np.isfinite(at.curve.seed_noise)]
        if seeds:
            spread = 100 * float(np.mean(seeds))
            label = f"± s.d. over seeds, {spread:.0f}%"
            band = {"color": style.FAINT, "alpha": 0.25, "lw": 0, "label": label}
            entries.append(ax.axhspan(-spread, spread, **band))
        ax.axhline(0, color=style.INK, lw=1)
        ax.set_xscale("log")
        style.count_axis(ax.xaxis, most=5)
        ax.set_xlabel("batch B over b/a")
        style.panel_title(ax, title)
    axes[0].set_ylabel("steps less those of\nS = a + b/B (%)")
    return style.side_legend(figure, [*entries, *style.handles(looks, lw=1, ms=4)])


def _cell(at: CriticalBatch) -> str:
    """Curves that share runs: a model, at a sequence length where there is one."""
    length = at.curve.seq_len
    return at.curve.model + (f", context {length:g}" if np.isfinite(length) else "")
