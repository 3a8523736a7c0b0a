"""Figures of late switches, catch-up, switch points and the law, from the tables of `analysis.py`.

After Wang et al. (arXiv 2602.14208).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.plots import style
from bss.stats import LR_PHASES, half_interval, mean_interval, phases_of
from experiments.late_switch.analysis import STAGES, TRUNK
from experiments.late_switch.switching import exponents, log_after

CI = "95% interval"
ONE_SEED = {"marker": "o", "mfc": "none", "mec": style.FAINT, "ms": 4}
EDGE = {"marker": "v", "mfc": "none", "mec": style.INK, "ms": 6}
BAND = {"lw": 8, "alpha": 0.16, "color": style.INK, "solid_capstyle": "butt"}


def shares_figure(table: pd.DataFrame, small: int = 4) -> Figure:
    """Final loss minus the small batch's against the share of tokens before the switch.

    A share of 0% is the large batch throughout, 100% the small one.

    Args:
        table: differences.csv.
        small: Batch size before the switch, in sequences.
    """
    phases = [phase for phase in LR_PHASES if phase in set(phases_of(table))]
    figure, axes = style.new_figure(3.5, columns=len(phases), sharey=True)
    single = table.loc[table["name"].str.match(r"x \d+ at")]
    factors = sorted(single["name"].str.split().str[1].astype(int).unique())
    looks = style.named_styles(factors)
    for ax, phase in zip(axes[0], phases, strict=True):
        rows = table.loc[phases_of(table) == phase].set_index("name")
        for factor, look in looks.items():
            own = rows.loc[rows.index.str.startswith(f"x {factor} at")]
            share = own.index.str.extract(r"at ([\d.]+)%", expand=False).astype(float)
            points = own.assign(share=share.to_numpy())
            large = f"constant {small * factor}"
            ends = rows.loc[rows.index.isin([large, TRUNK])]
            ends = ends.assign(share=np.where(ends.index == TRUNK, 100.0, 0.0))
            line = pd.concat([points, ends]).sort_values("share")
            x, y, half = style.columns(line, "share", "to_trunk", "to_trunk_half")
            if len(points):
                style.bars(ax, (x, y, y - half, y + half), look, x > 0)
        if STAGES in rows.index:
            ax.axhline(float(rows.at[STAGES, "to_trunk"]), color=style.INK, lw=1, ls="--")
        ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
        style.panel_title(ax, LR_PHASES[phase].short, xlabel="switch at (% of the tokens)")
    axes[0, 0].set_ylabel(f"test loss minus batch {small}'s (nats)")
    entries = style.handles(looks, "{} times", ms=5)
    entries.append(style.hollow("large batch\nthroughout", ms=5))
    if STAGES in set(table["name"]):
        entries.append(style.handle(STAGES, lw=1, ls="--", color=style.INK))
    entries.append(style.handle(f"bars: {CI}", ls="none", marker="|", ms=9, color=style.INK))
    return style.side_legend(figure, entries, "batch grows by")


def catch_up_figure(table: pd.DataFrame) -> Figure:
    """Loss of a switched run minus another run's at equal steps, against steps since the switch.

    Args:
        table: catch_up.csv.
    """
    figure, axes = style.new_figure(3.5, columns=2, sharey=True)
    looks = style.named_styles(sorted(set(table["factor"])))
    titles = {"to_large": "minus the large batch throughout", "to_early": "minus a switch at 10%"}
    for ax, (column, title) in zip(axes[0], titles.items(), strict=True):
        for factor, look in looks.items():
            own = table.loc[table["factor"] == factor]
            wide = own.pivot(index="after", columns="seed", values=column).dropna()
            after = wide.index.to_numpy(float)
            style.band(ax, (after, *mean_interval(wide.to_numpy().T)), look)
        ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
        style.panel_title(ax, title, xlabel="steps since the switch")
    axes[0, 0].set_ylabel("held-out loss at equal steps (nats)")
    entries = [*style.handles(looks, ms=5), style.handle(CI, **BAND)]
    return style.side_legend(figure, entries, "switch at 30%")


def switch_points_figure(table: pd.DataFrame) -> Figure:
    """Tokens after the best switch against the budget, with the fitted power law.

    Args:
        table: switch_points.csv.
    """
    figure, [[ax]] = style.new_figure(3.4, width=6.6)
    inside = table["inside"].to_numpy(bool)
    for filled, mark in ((inside, {"mfc": "none"}), (~inside, {"mfc": "none", "marker": "v"})):
        x, y = style.columns(table.loc[filled], "budget", "after")
        look = {"ls": "none", "marker": "o", "mec": style.FAINT, "ms": 5}
        ax.plot(x * 0.97, y, **look | mark)
    log_budget, logs = log_after(table)
    spread = np.exp(mean_interval(logs.T))
    style.bars(
        ax, (np.exp(log_budget), *spread), {"color": style.INK, "marker": "D", "linestyle": "none"}
    )
    slopes = exponents(table)
    slope = slopes.mean()
    error = float(half_interval(slopes))
    for power, line in ((slope, "--"), (1.0, ":")):
        law = np.exp(logs.mean() + power * (log_budget - log_budget.mean()))
        ax.plot(np.exp(log_budget), law, ls=line, color=style.INK, lw=1)
    ax.set(xscale="log", yscale="log", xlabel="budget D (tokens)", ylabel="D − P* (tokens)")
    for axis in (ax.xaxis, ax.yaxis):
        style.tokens_axis(axis)
    entries = [
        style.handle("one seed", ls="none", marker="o", mfc="none", mec=style.FAINT, ms=5),
        style.handle(f"mean, {CI}", ls="none", marker="D", color=style.INK, ms=6),
        style.handle(f"slope {slope:.2f} ± {error:.2f}", ls="--", color=style.INK, lw=1),
        style.handle("slope 1", ls=":", color=style.INK, lw=1),
    ]
    if not inside.all():
        bound = {"ls": "none", "marker": "v", "mfc": "none", "mec": style.FAINT, "ms": 5}
        entries.insert(1, style.handle("at the edge of\nthe grid", **bound))
    return style.side_legend(figure, entries)


def tasks_figure(table: pd.DataFrame, tasks: pd.DataFrame) -> Figure:
    """Exponents of the loss by synthetic language, and tokens after the best switch by budget.

    Args:
        table: switch_points.csv of part b4.
        tasks: task_exponents.csv of part b4.
    """
    figure, [[left, right]] = style.new_figure(3.4, columns=2)
    looks = style.named_styles(sorted(table["group"].unique()))
    entries = []
    for group, look in looks.items():
        entries.append(_switches_of(right, group, table.loc[table["group"] == group], look))
        seeds = tasks.loc[tasks["group"] == group, "exponent"].to_numpy(float)
        place = float(group.split()[-1])
        style.bars(left, (np.array([place]), *np.reshape(mean_interval(seeds), (3, 1))), look)
        left.plot(np.full(len(seeds), place + 0.06), seeds, ls="none", **ONE_SEED)
    style.panel_title(
        left, "the loss falls to its limit as D⁻ˢ", xlabel="mode decay of the language"
    )
    left.set_xticks([float(group.split()[-1]) for group in looks])
    left.set(ylabel="s", ylim=(0, None))
    right.set(xscale="log", yscale="log", ylabel="D − P* (tokens)")
    style.panel_title(right, "tokens after the best switch", xlabel="budget D (tokens)")
    for axis in (right.xaxis, right.yaxis):
        style.tokens_axis(axis)
    if not table["inside"].all():
        entries.append(style.handle("at the edge of\nthe grid", ls="none", **EDGE))
    entries.append(style.handle("one seed", ls="none", **ONE_SEED))
    entries.append(style.handle(f"bars: {CI}", ls="none", marker="|", ms=9, color=style.INK))
    return style.side_legend(figure, entries, "0: hard, 1: easy")


def _switches_of(ax: Axes, group: str, own: pd.DataFrame, look: Mapping[str, Any]) -> Line2D:
    """Draw a language's tokens after the best switch with their power law; return its handle."""
    log_budget, logs = log_after(own)
    slopes = exponents(own)
    half = float(half_interval(slopes))
    mean = np.exp(mean_interval(logs.T))
    style.bars(ax, (np.exp(log_budget), *mean), {**look, "linestyle": "none"})
    law = np.exp(logs.mean() + slopes.mean() * (log_budget - log_budget.mean()))
    ax.plot(np.exp(log_budget), law, color=look["color"], ls="--", lw=1)
    edge = own.loc[~own["inside"]]
    ax.plot(edge["budget"], edge["after"], ls="none", **EDGE)
    label = f"{group.replace('_', ' ')}\nslope {slopes.mean():.2f} ± {half:.2f}"
    return style.handle(label, **{**look, "ls": "--", "ms": 5})


def predictions_figure(table: pd.DataFrame) -> Figure:
    """Measured final losses of schedules that were not fitted against two predictions of them.

    Args:
        table: predictions.csv.
    """
    figure, axes = style.new_figure(3.8, columns=2, sharey=True, sharex=True)
    looks = style.named_styles(phase for phase in LR_PHASES if phase in set(phases_of(table)))
    titles = {"law": "the functional law", "equal_steps": "fixed batch size, equal steps"}
    every = table[["measured", *titles]]
    ends = np.array([every.min().min(), every.max().max()])
    margin = 0.04 * np.ptp(ends)
    for ax, (column, title) in zip(axes[0], titles.items(), strict=True):
        for i, (phase, look) in enumerate(looks.items()):
            rows = table.loc[phases_of(table) == phase]
            ax.plot(rows[column], rows["measured"], ls="none", ms=5, **look)
            rms = float(np.sqrt((rows[f"{column}_error"] ** 2).mean()))
            text = f"{LR_PHASES[phase].short}: rms error {rms:.3f}"
            place = (0.97, 0.03 + 0.06 * i)
            ax.annotate(text, place, xycoords="axes fraction", ha="right", size=style.SMALL)
        ax.axline((ends[0], ends[0]), slope=1, color=style.FAINT, lw=0.9, zorder=1)
        ax.set_aspect("equal")
        ax.set_xlim(ends[0] - margin, ends[1] + margin)
        ax.set_ylim(ends[0] - margin, ends[1] + margin)
        style.panel_title(ax, title, xlabel="predicted (nats per token)")
    axes[0, 0].set_ylabel("measured final loss (nats per token)")
    titled = {LR_PHASES[phase].short: look for phase, look in looks.items()}
    entries = style.handles(titled, ls="none", ms=5)
    entries.append(style.handle("equal", color=style.FAINT, lw=0.9))
    return style.side_legend(figure, entries)


def endings_figure(finals: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Final test losses of a few runs in every LR phase, minus the small batch's decayed one.

    Args:
        finals: Final losses of one part or of several.
        names: Compared runs, from top to bottom.
    """
    figure, [[ax]] = style.new_figure(3.4, width=6.6)
    rows = finals.assign(phase=phases_of(finals)).drop_duplicates(["name", "seed", "phase"])
    losses = rows.pivot(index=["name", "phase"], columns="seed", values="test_loss")
    apart = losses.sub(losses.loc[(TRUNK, "decayed")], axis=1)
    phases = [phase for phase in LR_PHASES if phase in set(rows["phase"])]
    looks = style.named_styles(phases)
    for phase, look in looks.items():
        for i, name in enumerate(names):
            if (name, phase) in apart.index:
                values = apart.loc[(name, phase)].to_numpy(float)
                values = values[np.isfinite(values)]
                half = float(half_interval(values))
                ax.errorbar(values.mean(), i, xerr=half, ls="none", ms=6, capsize=2.5, **look)
    ax.axvline(0, color=style.INK, lw=0.8, zorder=1)
    ax.set_yticks(range(len(names)), list(names))
    ax.invert_yaxis()
    ax.set_xlabel("test loss minus that of batch 4 decayed (nats)")
    titles = {LR_PHASES[phase].short: look for phase, look in looks.items()}
    entries = [*style.handles(titles, ls="none", ms=6)]
    entries.append(style.handle(f"bars: {CI}", ls="none", marker="_", ms=9, color=style.INK))
    return style.side_legend(figure, entries)


def gains_figure(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Final loss of a late switch by 4 minus its small batch's, by LR phase and size.

    Args:
        tables: differences.csv of the parts of each size, by the size's name.
    """
    figure, axes = style.new_figure(3.4, columns=2)
    looks = style.named_styles(tables)
    phases = (["constant"], [phase for phase in LR_PHASES if phase != "constant"])
    for ax, shown in zip(axes[0], phases, strict=True):
        for order, (size, look) in enumerate(looks.items()):
            for share, mark in ((70, {}), (95, {"mfc": "white"})):
                rows = tables[size].loc[tables[size]["name"] == f"x 4 at {share}%"]
                for place, phase in enumerate(shown):
                    own = rows.loc[phases_of(rows) == phase]
                    x = np.full(len(own), place + 0.1 * order + 0.35 * (share == 95) - 0.25)
                    y, half = style.columns(own, "to_trunk", "to_trunk_half")
                    ax.errorbar(x, y, half, ms=5.5, capsize=2.5, **{**look, **mark, "ls": "none"})
        ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
        ax.set_xticks(range(len(shown)), [LR_PHASES[phase].short for phase in shown])
        ax.set_xlim(-0.6, len(shown) - 0.4)
    style.panel_title(axes[0, 0], "at constant LR")
    style.panel_title(axes[0, 1], "averaged or decayed, on another scale")
    axes[0, 0].set_ylabel("test loss minus batch 4's (nats)")
    entries = style.handles(looks, ls="none", ms=5.5)
    entries.append(style.handle("switch at 70%", ls="none", marker="o", color=style.INK))
    entries.append(style.hollow("switch at 95%"))
    entries.append(style.handle(f"bars: {CI}", ls="none", marker="|", ms=9, color=style.INK))
    return style.side_legend(figure, entries)


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
    return style.side_legend(figure, [*entries, style.handle("lowest to\nhighest seed", **BAND)])
