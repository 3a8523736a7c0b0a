"""Figures of momentum, from finals.csv and curves.parquet."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.schedules.batch import BatchSchedule
from bss.stats import half_interval, mean_interval
from bss.units import format_tokens
from experiments.momentum.analysis import (
    CHOOSING,
    CUTS,
    KEPT,
    SHARED,
    chosen,
    geometric,
    judged_losses,
    kinds_of,
    part_cuts,
    tokens_to_loss,
)

OWN = "own beta1"
FIXED = f"beta1 {KEPT:g}"
LOOKS = {
    FIXED: {"color": "#c2571a", "linestyle": "--", "marker": "s"},
    OWN: {"color": "#10375c", "linestyle": "-", "marker": "o"},
}


def batches_figure(finals: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """Draw the decayed loss and tokens to a held-out loss, with beta1 0.9 and with the best beta1.

    Left: loss above the line's best batch size. Right: tokens at constant LR to the lowest loss
    that all reach. Bars are 95% intervals over seeds.
    """
    best = chosen(finals)
    losses = min(judged_losses(finals).items())[1]
    several = best.groupby("batch").filter(lambda own: len(own) > 1)
    lines = {FIXED: several.loc[several["beta1"] == KEPT], OWN: several.loc[several["own"]]}
    rows = {
        name: [at for at in zip(*style.columns(some, "batch", "beta1"), strict=True)]
        for name, some in lines.items()
    }
    curves = curves.loc[curves["tokens"] <= min(finals["token_budget"])]
    reached = tokens_to_loss(curves, best, [at for some in rows.values() for at in some])
    figure, ((left, right),) = style.new_figure(3.4, 1, 2, 9.4)
    for name, at in rows.items():
        batch = np.array([b for b, _ in at])
        each = losses.loc[at].to_numpy(float)
        apart = each - each[int(np.argmin(each.mean(axis=1)))]
        _bars(left, batch, apart.T, LOOKS[name])
        logs = np.log2(reached.loc[at].to_numpy(float)).T
        style.bars(right, (batch, *geometric(logs)), LOOKS[name])
    for ax in (left, right):
        ax.set_xscale("log")
        style.batch_axis(ax.xaxis, best["batch"].unique())
    tokens = format_tokens(int(min(finals["token_budget"])))
    style.panel_title(
        left, "after a decay", tokens + " tokens", xlabel="batch (sequences of 64 tokens)",
        ylabel="test loss above the line's best\n(nats per token)",
    )  # fmt: skip
    right.set_yscale("log")
    style.tokens_axis(right.yaxis)
    style.panel_title(
        right, "E(B) at constant LR", f"to {reached.attrs['loss']:.2f} nats",
        xlabel="batch (sequences of 64 tokens)", ylabel="tokens to the loss",
    )  # fmt: skip
    own = ", ".join(f"{beta1:g} at {batch:g}" for batch, beta1 in rows[OWN])
    note = style.handle("own: " + own.replace(", ", "\n"), ls="none")
    return style.side_legend(figure, [*style.handles(LOOKS), note])


def betas_figure(finals: pd.DataFrame) -> Figure:
    """Draw decayed loss minus that at beta1 0.9 against beta1; one panel per token budget."""
    lengths = {stop: table for stop, table in judged_losses(finals).items() if len(table) > 2}
    arms = pd.Series([float(batch) for table in lengths.values() for batch, _ in table.index])
    batches = sorted(set(arms.loc[arms.duplicated()].tolist()))
    looks = style.batch_styles(batches)
    figure, axes = style.new_figure(3.4, 1, max(len(lengths), 1), 9.4, sharey=True)
    for ax, (stop, table) in zip(axes[0], lengths.items(), strict=False):
        ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
        for batch in batches:
            own = table.loc[table.index.get_level_values("batch") == batch]
            if len(own) > 1 and (batch, KEPT) in own.index:
                apart = (own - own.loc[(batch, KEPT)]).dropna(axis=1)
                beta1 = apart.index.get_level_values("beta1").to_numpy(float)
                spread = 1 + 0.04 * (batches.index(batch) - len(batches) / 2)
                _bars(ax, (1 - beta1) * spread, apart.to_numpy(float).T, looks[batch])
        ax.set_xscale("log")
        ax.invert_xaxis()
        known = sorted({beta1 for table in lengths.values() for _, beta1 in table.index})
        ax.set_xticks([1 - beta1 for beta1 in known], [f"{beta1:g}" for beta1 in known])
        ax.minorticks_off()
        style.panel_title(ax, f"{format_tokens(stop)} tokens", xlabel="beta1, per step")
    axes[0, 0].set_ylabel(f"test loss minus that at {KEPT:g}\n(nats per token)")
    return style.side_legend(figure, style.handles(looks, "batch {:g}"))


def steps_figure(finals: pd.DataFrame, low: float = 0.7) -> Figure:
    """Draw what a lower beta1 gains against the steps of the run."""
    figure, ((ax,),) = style.new_figure(3.4, width=7.4)
    ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
    lengths = {stop: table for stop, table in judged_losses(finals).items() if len(table) > 2}
    looks = style.named_styles(format_tokens(stop) + " tokens" for stop in lengths)
    for look, (stop, table) in zip(looks.values(), lengths.items(), strict=True):
        batches = [
            b for b in table.index.unique("batch") if {(b, low), (b, KEPT)} <= {*table.index}
        ]
        apart = [(table.loc[(b, low)] - table.loc[(b, KEPT)]).dropna() for b in batches]
        taken = finals.loc[(finals["token_budget"] == stop) & (finals["lr_phase"] == "decayed")]
        taken = taken.groupby("batch")["steps"].first()
        steps = np.array([taken[f"{b:g}"] for b in batches])
        if batches:
            _bars(ax, steps, np.array(apart, float).T, look)
        for step, batch, one in zip(steps, batches, apart, strict=True):
            text = f"{batch:g}"
            at = (step, one.mean())
            place = (5, -11 if stop > 1e6 else 4)
            ax.annotate(text, at, place, textcoords="offset points", fontsize=8)
    ax.set_xscale("log")
    style.count_axis(ax.xaxis)
    style.panel_title(
        ax, f"loss at beta1 {low:g} minus loss at {KEPT:g}", "numbers at points: the batch",
        xlabel="steps of the run", ylabel="nats per token",
    )  # fmt: skip
    return style.side_legend(figure, style.handles(looks))


def growing_figure(finals: pd.DataFrame) -> Figure:
    """Plot decayed losses of growing and fixed batch sizes at equal tokens, by the later beta1."""
    table = finals.loc[~finals["seed"].isin(CHOOSING) & (finals["lr_phase"] == "decayed")]
    grown = table.loc[table["batch"].str.contains(":")]
    parts = list(grown.groupby(["token_budget", "batch"]))
    figure, axes = style.new_figure(2.9, 1, max(len(parts), 1), 9.4)
    for ax, ((stop, schedule), some) in zip(axes[0], parts, strict=False):
        rates = some["peak_lr"].unique()
        first = BatchSchedule.parse(schedule).batches[0]
        kept = table.loc[(table["token_budget"] == stop) & (table["beta1"] == KEPT)]
        stay = kept.loc[(kept["batch"] == str(first)) & kept["peak_lr"].isin(rates)]
        base = stay.set_index("seed")["test_loss"]
        lines = {f"beta1 {b:.2g}": x for b, x in some.groupby("beta1")}
        near = kept.loc[kept["batch"].isin(["1", "5", "6"])]
        for batch, x in near.groupby("batch"):
            rate = x.groupby("peak_lr")["eval_loss"].mean().idxmin()
            lines[f"constant {batch}"] = x.loc[x["peak_lr"] == rate]
        ax.axvline(0, color=style.INK, lw=0.8, zorder=1)
        for place, (name, x) in enumerate(lines.items()):
            apart = (x.set_index("seed")["test_loss"] - base).dropna().to_numpy(float)
            look = {"color": style.FAINT if "constant" in name else "#10375c", "marker": "o"}
            half = float(half_interval(apart[:, None])[0])
            ax.errorbar(apart.mean(), place, xerr=half, capsize=2.5, ls="none", **look)
        ax.set_yticks(range(len(lines)), lines)
        ax.locator_params(axis="x", nbins=5)
        ax.set_ylim(len(lines) - 0.5, -0.5)
        title = " → ".join(map(str, BatchSchedule.parse(schedule).batches))
        style.panel_title(
            ax, title, format_tokens(int(stop)) + " tokens",
            xlabel=f"test loss minus loss at fixed batch {first}\n(nats per token)",
        )  # fmt: skip
    return figure


def cuts_figure(curves: pd.DataFrame, cuts: pd.DataFrame) -> Figure:
    """Plot held-out losses after the fork, relative to the run without a change, and equal cuts."""
    part = part_cuts(curves)
    figure, ((left, right),) = style.new_figure(3.6, 1, 2, 9.8)
    stays = {seed: own for seed, own in part.loc[part["parent"].isna()].groupby("seed")}
    whole = part["peak_lr"].max()
    kinds = kinds_of(cuts)
    looks = style.named_styles([*(f"rate / {cut:g}" for cut in CUTS[1:]), *kinds])
    names = {pair: name for name, (pair, _) in kinds.items()}
    forks = part.loc[part["parent"].notna() & (part["tokens"] <= SHARED)]
    keys = ["schedule.batch", "peak_lr", "optimizer.beta1", "optimizer.beta2"]
    for (batch, rate, *betas), some in forks.groupby(keys):
        lines = []
        tokens = np.unique(some["tokens"])
        for seed, own in some.groupby("seed"):
            x, y = style.columns(stays[seed], "tokens", "eval_loss")
            loss = own.sort_values("tokens")["eval_loss"].to_numpy(float)
            lines.append(loss - np.interp(tokens, x, y))
        name = names[tuple(betas)] if ":" in batch else f"rate / {whole / rate:g}"
        left.plot(tokens, np.mean(lines, axis=0), lw=1.3, ms=4, **looks[name])
    left.axhline(0, color=style.INK, lw=0.8)
    style.tokens_axis(left.xaxis, most=5)
    style.panel_title(
        left, "after the fork", f"mean of {len(stays)} seeds", xlabel="tokens",
        ylabel="held-out loss minus loss of the\nunchanged run (nats per token)",
    )  # fmt: skip
    for place, (name, (_, logs)) in enumerate(kinds.items()):
        mean, low, high = geometric(logs[:, 0])
        right.plot(
            2 ** logs[:, 0], np.full(len(logs), place + 0.15), ls="none", marker="|",
            color=style.FAINT,
        )  # fmt: skip
        mark = {k: v for k, v in looks[name].items() if k != "linestyle"}
        ends = [[mean - low], [high - mean]]
        right.errorbar(mean, place, xerr=ends, capsize=2.5, ls="none", ms=6, **mark)
    for cut in (2, 4):
        right.axvline(cut, color=style.INK, lw=0.8, ls=":")
    right.set(xlim=(1.7, 4.6), ylim=(len(kinds) - 0.5, -0.5))
    right.set_yticks([])
    style.panel_title(
        right, "batch × 4: equal cut", "95%; one tick per seed",
        xlabel="LR cut of equal loss at equal tokens",
    )  # fmt: skip
    return style.side_legend(figure, style.handles(looks))


def _bars(ax, x: np.ndarray, apart: np.ndarray, look: style.Look) -> None:
    """Draw means of differences [seed, x] with their 95% intervals."""
    order = np.argsort(x)
    style.bars(ax, (x[order], *mean_interval(apart)[:, order]), look)
