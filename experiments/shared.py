"""Tables and figures that several experiments share."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bss.laws import CriticalFit, EsFit, fit_es
from bss.laws.base import DRAWS, Options
from bss.laws.es.fit import compare, shown_laws
from bss.laws.es.values import Comparison
from bss.plots import style

_BAND = {"lw": 8, "alpha": 0.2, "color": style.INK, "solid_capstyle": "butt"}


def fit_laws(
    points: pd.DataFrame, options: Options, others: Sequence[str] | None = None
) -> tuple[dict[str, EsFit], Comparison]:
    """Return fits of E(S) by law, the chosen one first, and the comparison of laws.

    Args:
        points: Table of points.
        options: Options of the fits.
        others: Laws to fit next to the chosen one; default: the best law of each family.
    """
    fit = fit_es(points, options=replace(options, draws=DRAWS))
    comparison = fit.comparison or compare(points)
    named = shown_laws(comparison) if others is None else others
    more = {law: fit_es(points, law, options=options) for law in named if law != fit.law_name}
    return {fit.law_name: fit} | more, comparison


def critical_table(fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return every fitted critical batch size with its intervals, in the unit of its design."""
    tables = {name: fit.summary() for name, fit in fits.items()}
    return pd.concat(tables, names=["design", ""]).reset_index("design").reset_index(drop=True)


def laws_table(fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return the exponents of every law with intervals; `note` has the reason if not resolved."""
    rows: list[dict[str, Any]] = []
    for name, fit in fits.items():
        for law_name, law in fit.laws.items():
            for variable, exponent in zip(law.variables, law.exponents, strict=True):
                row = {"design": name, "law": law_name, "variable": variable}
                row |= {"exponent": exponent.value, "low": exponent.low, "high": exponent.high}
                row |= {"coefficient": law.coefficient.value, "unit": law.unit}
                rows.append(row | {"points": law.points, "note": fit.joint_refused})
        if not fit.laws:
            rows.append({"design": name, "points": 0, "note": "; ".join(fit.warnings)})
    return pd.DataFrame(rows)


def mean_curve(run: pd.DataFrame) -> pd.DataFrame:
    """Return the curve of a schedule at the tokens at which all its seeds were evaluated.

    Args:
        run: Columns seed, tokens, step, eval_loss, of one schedule at one LR.

    Returns:
        Columns tokens, steps, loss (mean), low and high (lowest and highest seed).
    """
    seeds = run["seed"].nunique()
    grouped = run.groupby("tokens")
    losses = grouped["eval_loss"]
    table = losses.agg(loss="mean", low="min", high="max")
    table.insert(0, "steps", grouped["step"].first())
    return table.loc[losses.count() == seeds].reset_index()


def clocks_figure(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw held-out loss against tokens and against steps, one line per schedule.

    The highest 5% of the losses are not shown. The first schedule is drawn on top.

    Args:
        curves: Tables of `mean_curve` by name.
    """
    figure, [[tokens, steps]] = style.new_figure(3.6, columns=2, sharey=True)
    looks = style.lined_styles(curves)
    for ax, unit in ((tokens, "tokens"), (steps, "steps")):
        for order, (name, table) in enumerate(curves.items()):
            at, loss, low, high = style.columns(table, unit, "loss", "low", "high")
            first = {"zorder": 3 - order / len(curves)}
            ax.plot(at, loss, lw=1.3, ms=3.5, markevery=3, **looks[name], **first)
            ax.fill_between(at, low, high, color=looks[name]["color"], alpha=0.2, lw=0)
        style.panel_title(ax, f"at equal {unit}", xlabel=unit)
    steps.set_xscale("log")
    low, high = pd.concat(curves.values())["loss"].quantile([0, 0.95])
    tokens.set_ylim(low - 0.05 * (high - low), high)
    style.tokens_axis(tokens.xaxis)
    style.count_axis(steps.xaxis, most=4)
    tokens.set_ylabel("held-out loss (nats per token)")
    entries = style.handles(looks, lw=1.3, ms=4)
    return style.side_legend(figure, [*entries, style.handle("lowest to\nhighest seed", **_BAND)])
