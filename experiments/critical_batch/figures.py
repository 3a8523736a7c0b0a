"""Figures of critical batch sizes, weight averages and LR schedules, from tables of `analysis.py`.

After Zhang et al. (arXiv 2410.21676).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.laws import CriticalFit
from bss.plots import style
from bss.plots.critical import curve_handles, draw_steps


def steps_panels(fits: Mapping[str, CriticalFit]) -> Figure:
    """Draw relative steps against batch size, one panel per fit.

    Args:
        fits: Fits by title.
    """
    figure, axes = style.panels(len(fits), 3.4, beside=1.0)
    limits = []
    for ax, (title, fit) in zip(axes, fits.items(), strict=True):
        draw_steps(ax, fit)
        style.panel_title(ax, title)
        ax.legend(handles=curve_handles(fit), frameon=False, fontsize=7, loc="lower left")
        limits.append([*ax.get_xlim(), *ax.get_ylim()])
    low = np.min(limits, axis=0)
    high = np.max(limits, axis=0)
    for ax in axes:
        ax.set(xlim=(low[0], high[1]), ylim=(low[2] / 4, high[3]))
        style.batch_axis(ax.xaxis, most=6)
        style.count_axis(ax.yaxis)
    return figure


def growth_figure(curves: pd.DataFrame, laws: pd.DataFrame) -> Figure:
    """Draw critical batch sizes against D by N, and against N by D, with the law of both.

    Args:
        curves: Columns params, tokens, cbs, cbs_low, cbs_high, in sequences.
        laws: Table of exponents, with `quantity` "cbs".
    """
    whole = laws.loc[(laws["quantity"] == "cbs") & (laws["without"].fillna("") == "")]
    known = whole.set_index("exponent")["value"]
    logs = np.log(curves["cbs"]) - known["N"] * np.log(curves["params"])
    level = float((logs - known["D"] * np.log(curves["tokens"])).mean())
    figure, [[left, right]] = style.new_figure(3.6, columns=2, sharey=True)
    entries = []
    names = {"params": "N", "tokens": "D"}
    for ax, x, by in ((left, "tokens", "params"), (right, "params", "tokens")):
        looks = style.named_styles(sorted(curves[by].unique()))
        for i, (value, look) in enumerate(looks.items()):
            some = curves.loc[curves[by] == value].sort_values(x)
            at, cbs, low, high = style.columns(some, x, "cbs", "cbs_low", "cbs_high")
            law = np.exp(level) * at ** known[names[x]] * value ** known[names[by]]
            shift = 1.03 ** (i - (len(looks) - 1) / 2)
            style.bars(ax, (at * shift, cbs, low, high), {**look, "linestyle": "none"})
            ax.plot(at, law, color=look["color"], lw=1.1)
            text = f"{value // 1e3:.0f}k" if by == "params" else f"{value / 1e6:g}M"
            entries.append(style.handle(f"{names[by]} = {text}", ls="none", ms=5, **look))
        ax.set(xscale="log", yscale="log")
        ax.set_xlim(curves[x].min() / 1.3, curves[x].max() * 1.3)
        style.tokens_axis(ax.xaxis, most=4)
    style.panel_title(left, "against data", xlabel="training tokens D")
    style.panel_title(right, "against model size", xlabel="non-embedding parameters N")
    left.set_ylabel("critical batch (sequences), 95% CI")
    style.count_axis(left.yaxis)
    title = f"lines: N^{known['N']:.2f} · D^{known['D']:.2f}"
    return style.side_legend(figure, entries, title)


def relative_steps(steps: pd.DataFrame, by: str, budget: int, smallest: int = 64) -> pd.DataFrame:
    """Return tokens to the target of a budget, relative to the tokens of a small batch size.

    Args:
        steps: Table of `measuring.minima`.
        by: Column of the compared cells.
        budget: D in tokens.
        smallest: Batch size in tokens whose ratio is 1.

    Returns:
        The rows of the budget, with the columns batch_tokens, relative and error of
        `relative_figure`.
    """
    rows = steps.loc[steps["budget_tokens"] == budget]
    batch = rows["batch"] * rows["seq_len"]
    tokens = rows["tokens_to_target"]
    first = tokens.loc[batch == smallest].set_axis(rows.loc[batch == smallest, by])
    error = rows["seed_noise"] / rows["seeds"] ** 0.5
    return rows.assign(batch_tokens=batch, relative=tokens / rows[by].map(first.get), error=error)


def relative_figure(table: pd.DataFrame, name: str, label: str, title: str) -> Figure:
    """Draw ratios of tokens to one target against batch size, one line per name.

    Args:
        table: Columns `name`, batch_tokens, relative, and error: standard error of its logarithm,
            or NaN. A ratio in the column at_least is a bound.
        name: Column of the lines.
        label: Of the ratio's axis.
        title: Of the figure.
    """
    figure, [[ax]] = style.new_figure(3.6)
    looks = style.named_styles(table[name])
    ax.axhline(1, color=style.FAINT, lw=1)
    for i, (one, look) in enumerate(looks.items()):
        rows = table.loc[(table[name] == one) & table["relative"].notna()]
        at, relative, error = style.columns(rows, "batch_tokens", "relative", "error")
        low = relative * np.exp(-1.96 * error)
        high = relative * np.exp(1.96 * error)
        shift = 1.04 ** (i - (len(looks) - 1) / 2)
        style.bars(ax, (at * shift, relative, low, high), look)
        if "at_least" in table:
            bounds = table.loc[(table[name] == one) & table["at_least"].notna()]
            where, bound = style.columns(bounds, "batch_tokens", "at_least")
            mark = {"marker": "^", "linestyle": "none", "mfc": "white", "color": look["color"]}
            ax.plot(where * shift, bound, ms=8, **mark)
    style.batch_axis(ax.xaxis)
    ax.set(xlabel="batch size (tokens)", ylabel=label)
    style.panel_title(ax, title)
    entries = style.handles(looks, ms=5, lw=1.2)
    if "at_least" in table:
        bound = {"marker": "^", "mfc": "white", "color": style.INK, "ms": 8}
        entries = [
            *entries,
            style.handle("at least: a seed\nmissed the target", ls="none", **bound),
        ]
    return style.side_legend(figure, entries)
