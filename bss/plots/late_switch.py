"""Late switching in language models: catch-up by tokens and steps, switch points, predictions.

After Wang et al. (arXiv 2602.14208). Bars and bands are 2 standard errors over seeds.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.points.standings import ENDINGS
from bss.units import format_tokens

PREDICTORS = {
    "predicted": "the functional law",
    "mean_batch_constant": "constant, equal steps",
    "best_training": "best of the fitted",
}


def clocks_figure(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Held-out loss against tokens and against steps, one line per schedule.

    The panels show what all but one of the schedules cover: the other goes on, or starts high.

    Args:
        curves: columns tokens, steps, loss (nats) by name; the mean over seeds.
    """
    figure, [[tokens, steps]] = style.new_figure(3.6, columns=2, sharey=True)
    looks = style.named_styles(curves)
    for ax, clock in ((tokens, "tokens"), (steps, "steps")):
        for name, table in curves.items():
            at, loss = style.columns(table, clock, "loss")
            ax.plot(at, loss, lw=1.3, ms=3.5, markevery=3, **looks[name])
        style.panel_title(ax, f"at equal {clock}", xlabel=clock)
    if len(curves) > 1:
        spans = [style.columns(table, "tokens", "loss") for table in curves.values()]
        ends = sorted(x[-1] for x, _ in spans)
        highest = sorted(y[0] for _, y in spans)
        lowest = min(y.min() for _, y in spans)
        margin = 0.05 * (highest[-2] - lowest)
        tokens.set(xlim=(0, 1.05 * ends[-2]), ylim=(lowest - margin, highest[-2] + margin))
    style.tokens_axis(tokens.xaxis)
    steps.set_xscale("log")
    style.count_axis(steps.xaxis)
    tokens.set_ylabel("held-out loss (nats per token)")
    return style.side_legend(figure, style.handles(looks, lw=1.3, ms=4))


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
    axes[0, 0].set_ylabel("difference of losses (nats per token)")
    style.tokens_axis(axes[0, 1].xaxis)
    switches = {format_tokens(int(at)): look for at, look in looks.items()}
    entries = style.handles(switches, lw=1.3, ms=4)
    return style.side_legend(figure, entries, "switch after\n(tokens)")


def switch_points_figure(table: pd.DataFrame, exponents: pd.DataFrame) -> Figure:
    """Tokens after the best switch against the budget, with the power law of each source.

    Hollow marks are no optima: the best switch was the last or the first that was tried. A budget
    at which no switch helped has no mark.

    Args:
        table: columns source, budget, after, after_error (of its logarithm) and interior.
        exponents: columns source, exponent, low, high.
    """
    figure, [[ax]] = style.new_figure(3.6)
    names, looks = (
        {"measured": "measured", "law": "by the fitted law"},
        style.batch_styles(range(3)),
    )
    entries = []
    found = exponents.set_index("source").to_dict("index")
    for look, (source, name) in zip(looks.values(), names.items(), strict=False):
        rows = table.loc[(table["source"] == source) & (table["after"] > 0)]
        x, y, log_error = style.columns(rows, "budget", "after", "after_error")
        inside = rows["interior"].to_numpy(bool)
        error = np.where(inside & np.isfinite(log_error), log_error, 0)
        mark = look | {"linestyle": "none"}
        ends = y * np.exp(-error), y * np.exp(error)
        style.bars(ax, x, y, *ends, mark, inside, ms=6, zorder=2)
        value = found.get(source, {}).get("exponent")
        if value is not None and np.isfinite(value) and inside.any():
            low, high = found[source]["low"], found[source]["high"]
            name += f"\nexponent {value:.2f} (90%: {low:.2f} to {high:.2f})"
            centre = [np.exp(np.log(v[inside]).mean()) for v in (x, y)]
            ends = np.array([x[inside].min(), x[inside].max()])
            line = centre[1] * (ends / centre[0]) ** value
            ax.plot(ends, line, lw=1.2, ls="--", color=look["color"])
        entries.append(style.handle(name, ms=6, **mark))
    ax.set(xscale="log", yscale="log")
    ax.set(xlabel="budget (tokens)", ylabel="tokens after the best switch")
    for axis in (ax.xaxis, ax.yaxis):
        style.tokens_axis(axis)
    return style.side_legend(figure, [*entries, style.hollow("a bound", ms=6)])


def predictions_figure(table: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    """Measured final losses of schedules the fit has not seen against each prediction.

    Args:
        table: columns rate, measured, error and one for each of PREDICTORS, in nats.
        scores: columns group, predictor, schedules, ratio, rank_correlation; "all" is told.
    """
    figure, axes = style.new_figure(3.7, columns=len(PREDICTORS), sharey=True)
    looks = style.named_styles(kind for kind in ENDINGS if kind in set(table["rate"]))
    told = scores[scores["group"] == "all"].set_index("predictor").to_dict("index")
    for ax, (column, title) in zip(axes[0], PREDICTORS.items(), strict=True):
        for kind, look in looks.items():
            rows = table.loc[table["rate"] == kind]
            x, y, error = style.columns(rows, column, "measured", "error")
            ax.errorbar(x, y, yerr=np.nan_to_num(error), ls="none", ms=5, lw=0.8, **look)
        line = [table["measured"].min(), table["measured"].max()]
        ax.set_ylim(line[0] - 0.3 * (line[1] - line[0]))  # room for the scores
        ax.plot(line, line, color=style.FAINT, lw=0.9, zorder=1)
        style.panel_title(ax, title, xlabel="predicted (nats per token)")
        if column in told:
            score = told[column]
            text = f"{score['schedules']} runs\nerror of differences: {score['ratio']:.2f}"
            text += "\nof their spread"
            if np.isfinite(score["rank_correlation"]):
                text += f"\nrank correlation {score['rank_correlation']:.2f}"
            ax.text(
                0.98, 0.03, text, ha="right", va="bottom", size=style.SMALL, transform=ax.transAxes
            )
    axes[0, 0].set_ylabel("measured final loss (nats per token)")
    titled = {ENDINGS[kind].title: look for kind, look in looks.items()}
    equal = style.handle("equal", color=style.FAINT, lw=0.9)
    return style.side_legend(figure, [*style.handles(titled, ls="none", ms=5), equal])
