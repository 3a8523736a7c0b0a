"""The figures of E(S), B_opt, B_min and the schedule, from the tables of `analysis.py`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.points.curve import smooth_curve
from bss.stats import mean_interval, phases_of

FALLING = "target loss (nats per token), falling →"
MARK = {"ls": "none", "marker": "o", "color": style.INK, "ms": 5}
LAW_NAMES = {"piecewise": "three stages", "hyperbola": "hyperbola"}
PHASES = {"constant": "constant LR", "averaged": "averaged weights", "decayed": "decayed"}


def curves_figure(runs: pd.DataFrame, batches: Sequence[int], first: float = 8e4) -> Figure:
    """Mean loss over seeds from `first` tokens on, and its excess over the best batch size."""
    chosen = runs.loc[runs["batch"].isin(batches)]
    grid = np.geomspace(first, chosen.groupby("run")["tokens"].max().min(), 40)
    mean = {
        int(str(batch)): np.mean(
            [np.interp(grid, run["tokens"], run["eval_loss"]) for _, run in some.groupby("run")], 0
        )
        for batch, some in chosen.groupby("batch")
    }
    least = np.min([*mean.values()], axis=0)
    figure, [[left, right]] = style.new_figure(3.5, columns=2)
    looks = style.batch_styles(mean)
    for batch, loss in mean.items():
        left.plot(grid, loss, lw=1.3, ms=4, markevery=4, **looks[batch])
        right.plot(grid, loss - least, lw=1.3, ms=4, markevery=4, **looks[batch])
    for ax in (left, right):
        ax.set(xscale="log", xlabel="tokens consumed")
        ax.set_xlim(grid[0], grid[-1])
        style.tokens_axis(ax.xaxis)
    left.set_ylabel("held-out loss (nats per token)")
    right.set(ylabel="loss minus the lowest one (nats)", ylim=(-0.005, 0.2))
    return style.side_legend(figure, style.handles(looks, "batch size {}", ms=4), "sequences")


def optima_figure(panels: Mapping[str, pd.DataFrame], slopes: pd.DataFrame | None = None) -> Figure:
    """B_opt of all seeds against the target loss, and B_min (mean over seeds) with it.

    Bars are 90% intervals of B_opt and the range over seeds of B_min. An arrow is a bound: B_opt
    is not distinguishable from the smallest or largest batch size, or B_min is below one sequence,
    the smallest batch there is.

    Args:
        panels: A title to a table target_loss, B_opt, low, high, in sequences.
        slopes: Columns target_loss, B_min; drawn in the first panel.
    """
    figure, axes = style.new_figure(3.4, columns=len(panels), sharey=True)
    looks = style.named_styles(["$B_{opt}$", "$B_{min}$"])
    bounded = False
    for ax, (title, table) in zip(axes[0], panels.items(), strict=True):
        x, y, low, high = style.columns(table, "target_loss", "B_opt", "low", "high")
        known = np.isfinite(y)
        style.bars(ax, (x[known], y[known], low[known], high[known]), looks["$B_{opt}$"])
        style.bounds(ax, x[~known], low[~known], high[~known])
        bounded |= not known.all()
        ax.set_xlim(style.falling(table["target_loss"]))
        style.panel_title(ax, title, xlabel=FALLING)
    if slopes is not None:
        known = slopes.loc[slopes["B_min"] > 0].groupby("target_loss")["B_min"]
        mean = known.agg(["median", "min", "max"]).reset_index()
        below = mean["median"] < 1
        mean["min"] = mean["min"].clip(lower=1)
        line = style.columns(mean.loc[~below], "target_loss", "median", "min", "max")
        style.bars(axes[0, 0], line, {**looks["$B_{min}$"], "linestyle": "--"})
        colour = looks["$B_{min}$"]["color"]
        at = mean.loc[below, "target_loss"].to_numpy(float)
        bounded |= bool(len(at))
        axes[0, 0].plot(at, np.ones(len(at)), ls="none", marker="v", ms=6, color=colour)
    axes[0, 0].set_ylabel("batch size (sequences)")
    style.batch_axis(axes[0, 0].yaxis)
    shown = looks if slopes is not None else {"$B_{opt}$": looks["$B_{opt}$"]}
    entries = style.handles(shown, ms=5)
    if bounded:
        text = "bound: below 1, or\nbeyond the batch sizes"
        entries.append(style.handle(text, ls="none", marker="v", color=style.INK, ms=6))
    return style.side_legend(figure, entries)


def laws_figure(errors: pd.DataFrame) -> Figure:
    """Error of each law at left-out batch sizes, one mark per seed, lowest mean first.

    Args:
        errors: Columns law, seed, interior_log_E, edge_log_E.
    """
    figure, axes = style.new_figure(3.0, columns=2, sharey=True)
    means = errors.pivot_table(index="law", values="interior_log_E")["interior_log_E"]
    order = means.index[np.argsort(means.to_numpy())]
    titles = {"interior_log_E": "inner batch sizes", "edge_log_E": "smallest and largest"}
    for ax, (column, title) in zip(axes[0], titles.items(), strict=True):
        for i, law in enumerate(order):
            values = errors.loc[errors["law"] == law, column].to_numpy(float)
            ax.plot(values, np.full(len(values), i), "o", mfc="none", mec=style.FAINT, ms=5)
            ax.plot(values.mean(), i, "D", color=style.INK, ms=6)
        ax.set_xscale("log")
        style.count_axis(ax.xaxis)
        style.panel_title(ax, title, xlabel="rms error of log tokens, left out")
    axes[0, 0].set_yticks(range(len(order)), [LAW_NAMES.get(str(law), str(law)) for law in order])
    entries = [
        style.handle("one seed", ls="none", marker="o", mfc="none", mec=style.FAINT, ms=5),
        style.handle("mean", ls="none", marker="D", color=style.INK, ms=6),
    ]
    return style.side_legend(figure, entries)


def horizons_figure(table: pd.DataFrame) -> Figure:
    """Decayed test loss of each batch size above the best one, per token budget.

    Args:
        table: Columns tokens, batch, excess, half_interval_95.
    """
    figure, [[ax]] = style.new_figure(3.4, width=6.6)
    looks = style.named_styles(sorted(set(table["tokens"])))
    for tokens, some in table.groupby("tokens"):
        x, y, half = style.columns(some, "batch", "excess", "half_interval_95")
        style.band(ax, (x, y, y - half, y + half), looks[tokens])
    ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
    ax.set(xlabel="batch size (sequences)", ylabel="decayed test loss\nabove the best (nats)")
    style.batch_axis(ax.xaxis)
    ax.set_ylim(-0.01, 0.15)
    entries = {f"{tokens / 1e6:.2g}M": look for tokens, look in looks.items()}
    return style.side_legend(figure, style.handles(entries, ms=5), "token budget")


def sizes_figure(table: pd.DataFrame) -> Figure:
    """B_opt against the excess over the size's last loss, one line per model size.

    Args:
        table: Columns seed, size, excess, B_opt, low, high.
    """
    figure, [[ax]] = style.new_figure(3.4, width=6.6)
    whole = table.loc[table["seed"] < 0]
    looks = style.named_styles(whole["size"])
    for i, (size, look) in enumerate(looks.items()):
        rows = whole.loc[whole["size"] == size]
        x, y, low, high = style.columns(rows, "excess", "B_opt", "low", "high")
        known = np.isfinite(y)
        x = x * 1.03 ** (i - (len(looks) - 1) / 2)
        style.bars(ax, (x[known], y[known], low[known], high[known]), look)
    ax.set(xscale="log", xlabel="excess over the size's last loss (nats), falling →")
    ax.set_xlim(whole["excess"].max() * 1.2, whole["excess"].min() / 1.2)
    style.count_axis(ax.xaxis)
    ax.set_ylabel("$B_{opt}$ (sequences)")
    ax.set_ylim(whole["low"].min() / 1.5, whole["high"].max() * 1.5)
    style.batch_axis(ax.yaxis)
    return style.side_legend(figure, style.handles(looks, ms=5), "parameters")


def differences_figure(table: pd.DataFrame, label: str, margin: float = 0.005) -> Figure:
    """Mean differences with 95% intervals, one row per name and one panel per LR phase.

    All panels have one scale.

    Args:
        table: Columns name, difference, half_interval_95 in nats, and lr_phase with weights, or
            phase, the title of a panel.
        label: Of the differences.
        margin: Shaded: no relevant effect.
    """
    if "lr_phase" in table:
        table = table.assign(phase=phases_of(table))
    found = list(dict.fromkeys(table["phase"]))
    phases = [
        *(one for one in PHASES if one in found),
        *(one for one in found if one not in PHASES),
    ]
    names = list(dict.fromkeys(table["arm"]))
    size = {"columns": len(phases), "sharex": True, "sharey": True}
    figure, axes = style.new_figure(1 + 0.35 * len(names), **size)
    for ax, phase in zip(axes[0], phases, strict=True):
        rows = table.loc[table["phase"] == phase].set_index("arm").reindex(names)
        ax.axvspan(-margin, margin, color=style.GRID, lw=0, zorder=0)
        ax.axvline(0, color=style.INK, lw=0.8, zorder=1)
        x, half = style.columns(rows, "difference", "half_interval_95")
        ax.errorbar(x, range(len(names)), xerr=half, **MARK, capsize=2.5, lw=1)
        ax.locator_params(axis="x", nbins=4)
        style.panel_title(ax, PHASES.get(phase, phase))
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].invert_yaxis()
    figure.supxlabel(f"{label} (nats per token)", fontsize=9)
    shaded = style.handle(f"±{margin:g}", color=style.GRID, lw=8)
    return style.side_legend(figure, [style.handle("mean and 95%\ninterval", **MARK), shaded])


def efficiency_figure(table: pd.DataFrame) -> Figure:
    """Plot tokens, steps, seconds and machine cost to the final loss of the best fixed batch size.

    Values are relative to the best fixed batch size.

    Args:
        table: Columns seed, arm, log_tokens, log_steps, log_seconds, log_cost_M.
    """
    columns = [name for name in table if str(name).startswith("log_")]
    names = list(dict.fromkeys(table["arm"]))
    figure, [[ax]] = style.new_figure(3.2, width=7.6)
    looks = style.named_styles(names)
    for i, (name, look) in enumerate(looks.items()):
        rows = table.loc[table["arm"] == name, columns]
        x = np.arange(len(columns)) + 0.12 * (i - (len(names) - 1) / 2)
        line = (x, *np.exp(mean_interval(rows.to_numpy(float))))
        style.bars(ax, line, {**look, "linestyle": "none"})
    ax.axhline(1, color=style.INK, lw=0.8, zorder=1)
    labels = [str(name).removeprefix("log_").replace("cost_", "time on\n") for name in columns]
    ax.set_xticks(range(len(columns)), labels, fontsize=8)
    ax.set(yscale="log", ylabel="relative to the best\nfixed batch size")
    style.count_axis(ax.yaxis)
    return style.side_legend(figure, style.handles(looks, ls="none", ms=5))


def rules_figure(panels: Mapping[str, pd.DataFrame], seq_len: int = 16) -> Figure:
    """Plot tokens to a loss by batch size, for each rule for beta2: the LR tuned, or one for all.

    Tokens are relative to the minimum over rules, LRs and batch sizes. Bars are 95% intervals over
    seeds; a triangle is a lower bound, as a run missed the loss.

    Args:
        panels: A title to rows of `experiments.es_wsd.conditions.relative_tokens` at one loss.
        seq_len: Tokens per sequence.
    """
    figure, axes = style.new_figure(3.6, columns=len(panels), sharey=True)
    names = list(dict.fromkeys(name for table in panels.values() for name in table["rule"]))
    looks = style.named_styles(names)
    for ax, (title, table) in zip(axes[0], panels.items(), strict=True):
        for (rule, rate), rows in table.groupby(["rule", "rate"], sort=False):
            rows = rows.sort_values("batch")
            x, y, half = style.columns(rows, "batch", "log_ratio", "half_interval_95")
            known = ~rows["at_least"].to_numpy(bool)
            shift = 1.04 ** (names.index(rule) - (len(names) - 1) / 2)
            line = (seq_len * x * shift, np.exp(y), np.exp(y - half), np.exp(y + half))
            look = looks[rule] | {"linestyle": "-" if rate == "tuned" else ":"}
            style.bars(ax, tuple(values[known] for values in line), look, filled=rate == "tuned")
            missed = np.exp(y[~known])
            style.bounds(
                ax, line[0][~known], missed, np.full(len(missed), np.nan), color=look["color"]
            )
        ax.set_yscale("log")
        style.panel_title(ax, title, xlabel="tokens per step")
        style.batch_axis(ax.xaxis)
        style.count_axis(ax.yaxis)
    axes[0, 0].set_ylabel("tokens to the loss,\nrelative to the fewest")
    entries = style.handles(looks, "beta2: {}, LR tuned", ms=5)
    entries.append(
        style.handle("the same, LR 8e-3", ls=":", marker="o", mfc="white", color=style.INK)
    )
    return style.side_legend(figure, entries)


def longer_figure(runs: pd.DataFrame, target: float, first: float = 3e5) -> Figure:
    """Plot the smoothed loss of small batch sizes against tokens, one line per seed.

    Args:
        runs: Columns run, batch, tokens, eval_loss.
        target: A loss, drawn as a line.
        first: Tokens from which curves are drawn.
    """
    figure, [[ax]] = style.new_figure(3.4, width=6.6)
    looks = style.batch_styles(sorted(set(runs["batch"])))
    for _, run in runs.groupby("run"):
        curve = smooth_curve(run, "eval_loss")
        late = curve.log_tokens >= np.log(first)
        look = looks[run["batch"].iloc[0]] | {"marker": "", "lw": 1.1}
        ax.plot(np.exp(curve.log_tokens[late]), curve.loss[late], **look)
    ax.axhline(target, color=style.INK, lw=0.8, ls="--", zorder=1)
    ax.set(xscale="log", xlabel="tokens consumed", ylabel="held-out loss (nats per token)")
    style.tokens_axis(ax.xaxis)
    entries = style.handles(looks, "batch size {}", ms=0)
    entries.append(style.handle(f"loss {target:g}", color=style.INK, ls="--", lw=0.8))
    return style.side_legend(figure, entries, "sequences")
