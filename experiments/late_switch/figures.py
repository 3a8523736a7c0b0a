"""Late switching in language models: catch-up by tokens and steps, switch points, predictions.

After Wang et al. (arXiv 2602.14208).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.stats import LR_PHASES
from bss.units import format_tokens

BAND = {"lw": 8, "alpha": 0.2, "color": style.INK, "solid_capstyle": "butt"}
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
ERRORS = "± 2 standard\nerrors of seeds"
PREDICTORS = {
    "predicted": "the functional law",
    "mean_batch_constant": "constant, equal steps",
    "best_training": "best of the fitted",
}


def clocks_figure(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Held-out loss against tokens and against steps, one line per schedule, seeds as bands.

    The panels show what all but one of the schedules cover: the other goes on, or starts high. The
    first schedule is drawn over the others, which may share its beginning.

    Args:
        curves: columns tokens, steps, loss, low, high (nats) by name: the mean over seeds, the
            lowest seed and the highest.
    """
    figure, [[tokens, steps]] = style.new_figure(3.6, columns=2, sharey=True)
    looks = lined_styles(curves)
    for ax, clock in ((tokens, "tokens"), (steps, "steps")):
        for order, (name, table) in enumerate(curves.items()):
            at, loss, low, high = style.columns(table, clock, "loss", "low", "high")
            first = {"zorder": 3 - order / len(curves)}
            ax.plot(at, loss, lw=1.3, ms=3.5, markevery=3, **looks[name], **first)
            ax.fill_between(at, low, high, color=looks[name]["color"], alpha=0.2, lw=0)
        style.panel_title(ax, f"at equal {clock}", xlabel=clock)
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
    return style.side_legend(figure, [*entries, style.handle("lowest to\nhighest seed", **BAND)])


def catch_up_figure(table: pd.DataFrame) -> Figure:
    """What is left of the gap to the large batch, and to the earliest switch, after each switch.

    Args:
        table: columns switch, tokens, steps, after_tokens, to_large_at_steps, to_earliest and their
            errors; the first row of a switch is the last before it.
    """
    figure, axes = style.new_figure(3.5, columns=2)
    looks = style.batch_styles(table["switch"])
    panels = {
        "to_large_at_steps": ("steps", "above the large batch at equal steps"),
        "to_earliest": ("tokens", "above the earliest switch at equal tokens"),
    }
    for ax, (column, (clock, title)) in zip(axes[0], panels.items(), strict=True):
        ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
        names = "steps", "tokens", "after_tokens", column, f"{column}_error"
        for i, (at, look) in enumerate(looks.items()):
            rows = table[table["switch"] == at].iloc[1:]
            steps, tokens, after, gap, error = style.columns(rows, *names)
            if clock == "steps":
                if len(steps) < 2:
                    continue
                after = after * (steps[-1] - steps[0]) / (tokens[-1] - tokens[0])
            if i or column != "to_earliest":
                ax.plot(after, gap, lw=1.3, ms=3.5, **look)
                ends = gap - error, gap + error
                ax.fill_between(after, *ends, color=look["color"], alpha=0.15, lw=0)
        style.panel_title(ax, title, xlabel=f"{clock} after the switch")
        place = {"textcoords": "offset points", "xycoords": ax.get_yaxis_transform()}
        ax.annotate("0: they meet", (0.99, 0), (0, 3), ha="right", size=style.SMALL, **place)
    axes[0, 0].set_ylabel("difference of losses (nats per token)")
    style.tokens_axis(axes[0, 1].xaxis)
    switches = {format_tokens(int(at)): look for at, look in looks.items()}
    entries = [*style.handles(switches, lw=1.3, ms=4), style.handle(ERRORS, **BAND)]
    return style.side_legend(figure, entries, "switch after\n(tokens)")


def switch_points_figure(table: pd.DataFrame, exponents: pd.DataFrame) -> Figure:
    """Tokens after the best switch against the budget, with the power law of the measured ones.

    No interval is told: budgets share their runs, and the power moves with what is called the
    origin of the tokens. A line of slope 1 is what it must stay below. Hollow marks are no optima:
    the best switch was the last or the first that was tried. A budget at which no switch helped
    has no mark.

    Args:
        table: columns source, budget, after, after_error (of its logarithm) and interior.
        exponents: columns source, exponent.
    """
    figure, [[ax]] = style.new_figure(3.6)
    names = {"measured": "measured", "law": "by the fitted law,\nnot measured"}
    looks = style.batch_styles(range(3))
    entries = []
    slope = exponents.loc[exponents["source"] == "measured", "exponent"].tolist()
    for look, (source, name) in zip(looks.values(), names.items(), strict=False):
        rows = table.loc[(table["source"] == source) & (table["after"] > 0)]
        x, y, log_error = style.columns(rows, "budget", "after", "after_error")
        inside = rows["interior"].to_numpy(bool)
        error = np.where(inside & np.isfinite(log_error), log_error, 0)
        mark = look | {"linestyle": "none"}
        line = x, y, y * np.exp(-error), y * np.exp(error)
        style.bars(ax, line, mark, inside, ms=6, zorder=2)
        if source == "measured" and slope and np.isfinite(slope[0]) and inside.any():
            name += f"\nslope {slope[0]:.2f} from origin 0"
            ends = np.array([x[inside].min(), x[inside].max()])
            last = ends / x[inside][-1]
            centre = [np.exp(np.log(v[inside]).mean()) for v in (x, y)]
            line = centre[1] * (ends / centre[0]) ** slope[0]
            ax.plot(ends, line, lw=1.2, ls="--", color=look["color"])
            ax.plot(ends, y[inside][-1] * last, lw=1, ls=":", color=style.INK, zorder=1)
        entries.append(style.handle(name, ms=6, **mark))
    ax.set(xscale="log", yscale="log")
    ax.set(xlabel="budget (tokens)", ylabel="tokens after the best switch")
    for axis in (ax.xaxis, ax.yaxis):
        style.tokens_axis(axis)
    entries.append(style.handle("slope 1", lw=1, ls=":", color=style.INK))
    entries.append(style.handle(f"bars: {ERRORS}", marker="|", ms=9, ls="none", color=style.INK))
    if not table["interior"].to_numpy(bool).all():
        entries.append(style.hollow("a bound", ms=6))
    return style.side_legend(figure, entries)


def predictions_figure(table: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    """Effect final losses of schedules the fit has not seen against each prediction.

    The best of the fitted runs predicts all alike and has no panel.

    Args:
        table: columns ending, measured, error and one for each of PREDICTORS, in nats.
        scores: columns group, predictor, schedules, ratio, rank_correlation; "all" is told.
    """
    figure, axes = style.new_figure(3.7, columns=len(PREDICTORS) - 1, sharey=True)
    looks = style.named_styles(kind for kind in LR_PHASES if kind in set(table["ending"]))
    scored = scores[scores["group"] == "all"].set_index("predictor").to_dict("index")
    for ax, (column, title) in zip(axes[0], PREDICTORS.items(), strict=False):
        for kind, look in looks.items():
            rows = table.loc[table["ending"] == kind]
            x, y, error = style.columns(rows, column, "measured", "error")
            ax.errorbar(x, y, yerr=np.nan_to_num(error), ls="none", ms=5, lw=0.8, **look)
        line = [table["measured"].min(), table["measured"].max()]
        ax.set_ylim(line[0] - 0.3 * (line[1] - line[0]))  # room for the scores
        ax.plot(line, line, color=style.FAINT, lw=0.9, zorder=1)
        style.panel_title(ax, title, xlabel="predicted (nats per token)")
        if column in scored:
            score = scored[column]
            text = f"{score['schedules']} runs\nerror of differences: {score['ratio']:.2f}"
            text += "\nof their spread"
            if np.isfinite(score["rank_correlation"]):
                text += f"\nrank correlation {score['rank_correlation']:.2f}"
            ax.text(
                0.98, 0.03, text, ha="right", va="bottom", size=style.SMALL, transform=ax.transAxes
            )
    axes[0, 0].set_ylabel("measured final loss (nats per token)")
    titled = {LR_PHASES[kind].title: look for kind, look in looks.items()}
    equal = style.handle("equal", color=style.FAINT, lw=0.9)
    error = style.handle(f"bars: {ERRORS}", marker="|", ms=9, ls="none", color=style.INK)
    return style.side_legend(figure, [*style.handles(titled, ls="none", ms=5), equal, error])


def lined_styles(names: Iterable[str], lines: Sequence[Any] = LINES) -> dict[str, dict[str, Any]]:
    """The styles of names, with lines that take turns."""
    looks = zip(style.named_styles(names).items(), cycle(lines), strict=False)
    return {name: look | {"linestyle": line} for (name, look), line in looks}
