"""Best learning rates: against tokens, model size or batch size; of one sweep the losses."""

import numpy as np
from matplotlib.axes import Axes

from bss.laws import LrFit
from bss.laws.lr.values import SYMBOLS, SweepOptimum
from bss.plots import style
from bss.units import rounded_tokens

LABELS = {"tokens": "D (tokens)", "params": "N (parameters)"}
POINTS = 50  # of a line
MOST = 8  # sizes in a legend, of which the others are not shown
BESIDE = 1.04  # between marks of two sizes at one position, so that their bars do not overlap


def draw_best_lrs(ax: Axes, fit: LrFit) -> None:
    """Draw the best LRs with their intervals, a colour per size, and the law."""
    if len(fit.optima) == 1:
        _draw_sweep(ax, fit.optima[0])
        return
    along, by = _axes_of(fit)
    sizes = sorted({getattr(one, by) for one in fit.optima})
    shown = [sizes[i] for i in np.unique(np.linspace(0, len(sizes) - 1, MOST).round().astype(int))]
    looks = style.named_styles(shown)
    for size in shown:
        group = [one for one in fit.optima if getattr(one, by) == size]
        aside = BESIDE ** (shown.index(size) - (len(shown) - 1) / 2)
        _draw_group(ax, fit, along, group, looks[size], aside)
    x = np.array([getattr(one, along) for one in fit.optima])
    ax.set(xscale="log", yscale="log", xlim=(x.min() / 1.3, x.max() * 1.3))
    if along == "batch":
        style.batch_axis(ax.xaxis)
    else:
        style.tokens_axis(ax.xaxis)
    style.count_axis(ax.yaxis)
    labels = LABELS | {"batch": f"batch size ({fit.unit})"}
    style.panel_title(ax, fit.law_name, xlabel=labels[along], ylabel="best peak LR")
    entries = [style.handle(_text(by, size), lw=1.2, ms=5, **looks[size]) for size in shown]
    if fit.law is not None:
        entries.append(style.handle("law", color=style.INK, lw=1.2))
    entries.append(style.handle(f"bar: {fit.level:.0%} interval;\ntriangle: a bound", ls="none"))
    if len(shown) < len(sizes):
        entries.append(style.handle(f"{len(sizes) - len(shown)} more: not shown", ls="none"))
    style.legend_beside(ax, entries, f"{SYMBOLS[by]}" if len(sizes) > 1 else "")


def _axes_of(fit: LrFit) -> tuple[str, str]:
    """Return the size to draw along, of which there are most, and the size of the colours."""
    counts = {
        n: len({getattr(one, n) for one in fit.optima}) for n in ("tokens", "params", "batch")
    }
    known = {n: k for n, k in counts.items() if np.isfinite(getattr(fit.optima[0], n))}
    along = max(known, key=lambda name: known[name])
    others = {n: k for n, k in known.items() if n != along}
    return along, max(others, key=lambda name: others[name]) if others else along


def _text(name: str, size: float) -> str:
    return f"{size:g}" if name == "batch" else rounded_tokens(size)


def _draw_group(
    ax: Axes, fit: LrFit, along: str, group: list[SweepOptimum], look: dict, aside: float
) -> None:
    """Draw the sweeps of one colour, with marks a little aside, and the law at their sizes."""
    x, value, low, high = np.array(
        [(getattr(one, along), one.best.value, one.best.low, one.best.high) for one in group], float
    ).T
    known = np.isfinite(value)
    spread = np.nan_to_num([value - low, high - value])[:, known]
    mark = {"ls": "none", "ms": 5, "mec": "white", "mew": 0.4, "capsize": 2, "elinewidth": 0.9}
    ax.errorbar(aside * x[known], value[known], yerr=np.maximum(spread, 0), **mark, **look)
    style.bounds(ax, aside * x[~known], low[~known], high[~known], color=look["color"], mfc="white")
    if fit.law is None:
        return
    line = np.geomspace(x.min(), x.max(), POINTS)
    others = {n: np.exp(np.mean([np.log(getattr(one, n)) for one in group])) for n in SYMBOLS}
    sizes = {n: line if n == along else np.full(POINTS, others[n]) for n in fit.law.variables}
    ax.plot(line, np.exp(fit.law.logs(sizes)), color=look["color"], lw=1.2)


def _draw_sweep(ax: Axes, one: SweepOptimum) -> None:
    """Draw the losses of one sweep with the best LR and its interval."""
    ax.plot(one.lr, one.loss, "o", ms=5, color=style.INK)
    entries = [style.handle("run", color=style.INK, marker="o", ls="none", ms=5)]
    ends = (one.best.low or one.lr[0], one.best.high or one.lr[-1])
    ax.axvspan(*ends, color=style.INK, alpha=0.12, lw=0)
    title = f"{one.best.level:.0%} interval" if one.best.value else "bounds"
    entries.append(style.handle(title, color=style.INK, lw=6, alpha=0.12))
    if one.best.value is not None:
        ax.axvline(one.best.value, color=style.INK, lw=1.2)
        entries.append(style.handle("best LR", color=style.INK, lw=1.2))
    ax.set(xscale="log", xlim=(one.lr[0] / 1.3, one.lr[-1] * 1.3))
    style.count_axis(ax.xaxis)
    style.panel_title(ax, "best LR", xlabel="peak LR", ylabel="loss (nats per token)")
    style.legend_beside(ax, entries)
