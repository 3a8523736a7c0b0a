"""Figures of late switching: catch-up by tokens and steps, switch points, predictions.

After Wang et al. (arXiv 2602.14208).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.stats import LR_PHASES
from bss.units import format_tokens
from experiments.late_switch.analysis import PREDICTORS

BAND = {"lw": 8, "alpha": 0.2, "color": style.INK, "solid_capstyle": "butt"}
ERRORS = "± 2 standard\nerrors of seeds"


def catch_up_figure(table: pd.DataFrame) -> Figure:
    """Draw the gap to the large batch, and to the earliest switch, after each switch.

    Args:
        table: catch_up.csv.
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
    """Draw tokens after the best switch against the budget, with the power law of the measured.

    Budgets share runs, so no interval is drawn. Hollow marks are bounds: the best switch was the
    last or the first that was tried. A budget at which no switch helped has no mark.

    Args:
        table: switch_points.csv.
        exponents: exponents.csv.
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
    """Draw final losses of schedules that the law was not fitted to against each prediction.

    The best of the fitted runs is one value for all schedules and has no panel.

    Args:
        table: predictions.csv.
        scores: scores.csv.
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
