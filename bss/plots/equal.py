"""Runs of equal cost: loss against batch size, with the best batch size."""

from matplotlib.axes import Axes

from bss.laws import EqualFit
from bss.plots import style

MOST = 8  # costs in a legend


def draw_equal(ax: Axes, fit: EqualFit) -> None:
    """Draw losses against batch size, a colour per cost, with B_opt and its interval below."""
    shown = fit.optima[-MOST:]
    looks = style.named_styles(range(len(shown)))
    lowest = min(float(at.loss.min()) for at in shown)
    span = max(float(at.loss.max()) for at in shown) - lowest
    entries = []
    for i, at in enumerate(shown):
        look = looks[i]
        ax.errorbar(at.batch, at.loss, yerr=at.error, ms=5, lw=1.2, elinewidth=0.9, **look)
        entries.append(style.handle(f"{at.cost:.4g}", lw=1.2, ms=5, **look))
        y = lowest - span * (i + 1) / 12
        ends = (at.best.low or at.batch[0], at.best.high or at.batch[-1])
        ax.plot(ends, (y, y), color=look["color"], lw=4, alpha=0.3, solid_capstyle="butt")
        if at.best.value is not None:
            ax.plot(at.best.value, y, "D", ms=7, mfc="white", mec=look["color"], mew=1.4)
    style.batch_axis(ax.xaxis)
    label = {"xlabel": f"batch size ({fit.unit})", "ylabel": "loss (nats per token)"}
    style.panel_title(ax, f"Loss at equal {style.named(fit.column)}", **label)
    name = f"bar: {fit.level:.0%} interval of $B_{{opt}}$,\nor its bounds"
    style.legend_beside(ax, [*entries, style.handle(name, ls="none")], style.named(fit.column))
