"""Tables and figures that several experiments share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from bss.laws import CriticalFit, EsFit, fit_es
from bss.laws.base import DRAWS, Options
from bss.laws.es.fit import compare, shown_laws
from bss.laws.es.values import Comparison
from bss.plots import style

LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
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


def lined_styles(names: Iterable[str], lines: Sequence[Any] = LINES) -> dict[str, dict[str, Any]]:
    """Return one style per name; line styles repeat in a cycle."""
    looks = zip(style.named_styles(names).items(), cycle(lines), strict=False)
    return {name: look | {"linestyle": line} for (name, look), line in looks}


def clocks_figure(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw held-out loss against tokens and against steps, one line per schedule.

    The axes show the range that all schedules except one cover. The first schedule is drawn on top.

    Args:
        curves: Tables of `mean_curve` by name.
    """
    figure, [[tokens, steps]] = style.new_figure(3.6, columns=2, sharey=True)
    looks = lined_styles(curves)
    for ax, unit in ((tokens, "tokens"), (steps, "steps")):
        for order, (name, table) in enumerate(curves.items()):
            at, loss, low, high = style.columns(table, unit, "loss", "low", "high")
            first = {"zorder": 3 - order / len(curves)}
            ax.plot(at, loss, lw=1.3, ms=3.5, markevery=3, **looks[name], **first)
            ax.fill_between(at, low, high, color=looks[name]["color"], alpha=0.2, lw=0)
        style.panel_title(ax, f"at equal {unit}", xlabel=unit)
    steps.set_xscale("log")
    if len(curves) > 1:
        spans = [style.columns(table, "tokens", "steps", "loss") for table in curves.values()]
        ends = sorted(x[-1] for x, _, _ in spans)
        highest = sorted(y[0] for *_, y in spans)
        lowest = min(y.min() for *_, y in spans)
        margin = 0.05 * (highest[-2] - lowest)
        top = highest[-2] + margin
        tokens.set(xlim=(0, 1.05 * ends[-2]), ylim=(lowest - margin, top))
        steps.set_xlim(left=min(at[loss <= top].min() for _, at, loss in spans) / 1.1)
    style.tokens_axis(tokens.xaxis)
    style.count_axis(steps.xaxis, most=4)
    tokens.set_ylabel("held-out loss (nats per token)")
    entries = style.handles(looks, lw=1.3, ms=4)
    return style.side_legend(figure, [*entries, style.handle("lowest to\nhighest seed", **_BAND)])
