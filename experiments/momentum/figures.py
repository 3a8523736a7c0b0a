"""The figures of momentum, from finals.csv and curves.parquet."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.schedules.batch import BatchSchedule
from bss.stats import half_interval
from bss.units import format_tokens
from experiments.momentum.cuts import CUTS, SHARED
from experiments.momentum.ended import CHOOSING, KEPT

OWN, FIXED = "own beta1", f"beta1 {KEPT:g}"
LOOKS = {
    FIXED: {"color": "#c2571a", "linestyle": "--", "marker": "s"},
    OWN: {"color": "#10375c", "linestyle": "-", "marker": "o"},
}
_KEYS = ["batch", "beta1", "peak_lr"]


def chosen(finals: pd.DataFrame) -> pd.DataFrame:
    """Constants by batch and beta1: the rate with the lowest decayed loss of the seeds that choose.

    Returns:
        Columns batch, beta1, peak_lr, eval_loss and own: whether its batch is best with this beta1.
    """
    table = finals.loc[finals["seed"].isin(CHOOSING) & ~finals["batch"].str.contains(":")]
    table = table.loc[(table["ending"] == "decay") & (table["stop"] == table["stop"].min())]
    means = table.astype({"batch": int}).groupby(_KEYS, as_index=False)["eval_loss"].mean()
    best = means.loc[means.groupby(["batch", "beta1"])["eval_loss"].idxmin()]
    return best.assign(own=best["eval_loss"] == best.groupby("batch")["eval_loss"].transform("min"))


def judged_losses(finals: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Decayed test losses [(batch, beta1), seed] of constants at their rate, by tokens of a run."""
    table = finals.loc[~finals["seed"].isin(CHOOSING) & ~finals["batch"].str.contains(":")]
    table = table.loc[table["ending"] == "decay"].astype({"batch": int})
    table = table.merge(chosen(finals)[_KEYS], on=_KEYS)
    return {
        int(str(stop)): some.pivot_table("test_loss", ["batch", "beta1"], "seed")
        for stop, some in table.groupby("stop")
    }


def batches_figure(finals: pd.DataFrame, curves: pd.DataFrame) -> Figure:
    """With beta1 .9 and with each batch's own: the decayed loss, and tokens to a held-out loss.

    Left above the best batch of the line, right at constant rate to the lowest loss that all reach;
    bars are 95% intervals over seeds.
    """
    best = chosen(finals)
    losses = min(judged_losses(finals).items())[1]
    several = best.groupby("batch").filter(lambda own: len(own) > 1)
    lines = {FIXED: several.loc[several["beta1"] == KEPT], OWN: several.loc[several["own"]]}
    rows = {
        name: [at for at in zip(*style.columns(some, "batch", "beta1"), strict=True)]
        for name, some in lines.items()
    }
    curves = curves.loc[curves["tokens"] <= min(finals["stop"])]
    reached = _tokens_to_loss(curves, best, [at for some in rows.values() for at in some])
    figure, ((left, right),) = style.new_figure(3.4, 1, 2, 9.4)
    for name, at in rows.items():
        batch = np.array([b for b, _ in at])
        each = losses.loc[at].to_numpy(float)
        apart = each - each[int(np.argmin(each.mean(axis=1)))]
        _bars(left, batch, apart.T, LOOKS[name])
        logs = np.log2(reached.loc[at].to_numpy(float)).T
        style.bars(right, (batch, *_geometric(logs)), LOOKS[name])
    for ax in (left, right):
        ax.set_xscale("log")
        style.batch_axis(ax.xaxis, best["batch"].unique())
    tokens = format_tokens(int(min(finals["stop"])))
    style.panel_title(
        left, "after a decay", tokens + " tokens", xlabel="batch (sequences of 64 tokens)",
        ylabel="test loss above the line's best\n(nats per token)",
    )  # fmt: skip
    right.set_yscale("log")
    style.tokens_axis(right.yaxis)
    style.panel_title(
        right, "E(B) at constant rate", f"to {reached.attrs['loss']:.2f} nats",
        xlabel="batch (sequences of 64 tokens)", ylabel="tokens to the loss",
    )  # fmt: skip
    own = ", ".join(f"{beta1:g} at {batch:g}" for batch, beta1 in rows[OWN])
    note = style.handle("own: " + own.replace(", ", "\n"), ls="none")
    return style.side_legend(figure, [*style.handles(LOOKS), note])


def _tokens_to_loss(
    curves: pd.DataFrame, best: pd.DataFrame, arms: Iterable[tuple[float, float]]
) -> pd.DataFrame:
    """Tokens [(batch, beta1), seed] at which curves of judged seeds reach what all of them do."""
    table = curves.loc[~curves["seed"].isin(CHOOSING) & ~curves["schedule.batch"].str.contains(":")]
    table = _per_step(table).sort_values("tokens")
    table = table.assign(beta1=table["optimizer.beta1"]).merge(best[_KEYS], on=_KEYS)
    wanted, paths = set(arms), {}
    for key, some in table.groupby(["batch", "beta1", "seed"]):
        arm = tuple(key)[:2]  # type: ignore[arg-type]
        if arm in wanted:
            read = some.loc[some["run"] == some["run"].value_counts().idxmax()]
            paths[key] = read[["tokens", "eval_loss"]].to_numpy(float)
    target = max(path[:, 1].min() for path in paths.values())
    reached = {
        arm: np.exp(np.interp(-target, -np.minimum.accumulate(path[:, 1]), np.log(path[:, 0])))
        for arm, path in paths.items()
    }
    found = pd.Series(reached).unstack()
    found.attrs["loss"] = target
    return found


def betas_figure(finals: pd.DataFrame) -> Figure:
    """Decayed loss against beta1, less that at .9, a line a batch; a panel a length of the run."""
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
    axes[0, 0].set_ylabel(f"test loss less that at {KEPT:g}\n(nats per token)")
    return style.side_legend(figure, style.handles(looks, "batch {:g}"))


def steps_figure(finals: pd.DataFrame, low: float = 0.7) -> Figure:
    """What a lower beta1 gains against the steps of the run: by them, or by the batch?"""
    figure, ((ax,),) = style.new_figure(3.4, width=7.4)
    ax.axhline(0, color=style.INK, lw=0.8, zorder=1)
    lengths = {stop: table for stop, table in judged_losses(finals).items() if len(table) > 2}
    looks = style.named_styles(format_tokens(stop) + " tokens" for stop in lengths)
    for look, (stop, table) in zip(looks.values(), lengths.items(), strict=True):
        batches = [
            b for b in table.index.unique("batch") if {(b, low), (b, KEPT)} <= {*table.index}
        ]
        apart = [(table.loc[(b, low)] - table.loc[(b, KEPT)]).dropna() for b in batches]
        taken = finals.loc[(finals["stop"] == stop) & (finals["ending"] == "decay")]
        taken = taken.groupby("batch")["steps"].first()
        steps = np.array([taken[f"{b:g}"] for b in batches])
        if batches:
            _bars(ax, steps, np.array(apart, float).T, look)
        for step, batch, one in zip(steps, batches, apart, strict=True):
            ax.annotate(
                f"{batch:g}",
                (step, one.mean()),
                (5, -11 if stop > 1e6 else 4),
                textcoords="offset points",
                fontsize=8,
            )
    ax.set_xscale("log")
    style.count_axis(ax.xaxis)
    style.panel_title(
        ax, f"loss at beta1 {low:g} less that at {KEPT:g}", "numbers at points: the batch",
        xlabel="steps of the run", ylabel="nats per token",
    )  # fmt: skip
    return style.side_legend(figure, style.handles(looks))


def growing_figure(finals: pd.DataFrame) -> Figure:
    """Growing batches against constants of as many tokens, decayed, by whether beta1 followed."""
    table = finals.loc[~finals["seed"].isin(CHOOSING) & (finals["ending"] == "decay")]
    grown = table.loc[table["batch"].str.contains(":")]
    parts = list(grown.groupby(["stop", "batch"]))
    figure, axes = style.new_figure(2.9, 1, max(len(parts), 1), 9.4)
    for ax, ((stop, schedule), some) in zip(axes[0], parts, strict=False):
        rates = some["peak_lr"].unique()
        first = BatchSchedule.parse(schedule).batches[0]
        kept = table.loc[(table["stop"] == stop) & (table["beta1"] == KEPT)]
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
            xlabel=f"test loss less that of constant {first}\n(nats per token)",
        )  # fmt: skip
    return figure


def cuts_figure(curves: pd.DataFrame, cuts: pd.DataFrame) -> Figure:
    """Held-out losses after the fork less those of the run that goes on, and the equal cuts."""
    part = part_cuts(curves)
    figure, ((left, right),) = style.new_figure(3.6, 1, 2, 9.8)
    stays = {seed: own for seed, own in part.loc[part["parent"].isna()].groupby("seed")}
    whole = part["peak_lr"].max()
    kinds = _kinds(cuts)
    looks = style.named_styles([*(f"rate / {cut:g}" for cut in CUTS[1:]), *kinds])
    names = {pair: name for name, (pair, _) in kinds.items()}
    forks = part.loc[part["parent"].notna() & (part["tokens"] <= SHARED)]
    keys = ["schedule.batch", "peak_lr", "optimizer.beta1", "optimizer.beta2"]
    for (batch, rate, *betas), some in forks.groupby(keys):
        lines, tokens = [], np.unique(some["tokens"])
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
        ylabel="held-out loss less that of the\nrun that goes on (nats per token)",
    )  # fmt: skip
    for place, (name, (_, logs)) in enumerate(kinds.items()):
        mean, low, high = (x[0] for x in _geometric(logs))
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
        right, "batch × 4: equal cut", "95%; a tick a seed",
        xlabel="cut of the rate with as much loss at equal tokens",
    )  # fmt: skip
    return style.side_legend(figure, style.handles(looks))


def cuts_table(cuts: pd.DataFrame) -> pd.DataFrame:
    """The cut that batch × 4 equals, with its 95% interval over seeds, geometric means."""
    rows = {
        name: [
            f"{x:.2f} ({low:.2f} to {high:.2f})" for x, low, high in np.transpose(_geometric(logs))
        ]
        for name, (_, logs) in _kinds(cuts).items()
    }
    return pd.DataFrame(rows, ["at equal tokens", "at equal sums of rates"]).T


def part_cuts(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows of curves.parquet that are of part cuts."""
    some = curves.loc[curves["schedule.tokens"].between(SHARED, 2 * SHARED - 1)]
    return _per_step(some).loc[
        lambda x: x["optimizer.beta2"].notna() & (x["tokens"] > 0.7 * SHARED)
    ]


def _per_step(curves: pd.DataFrame) -> pd.DataFrame:
    """Rows of runs without a half-life; a table has the column where it varies."""
    if "optimizer.beta2_half_life" not in curves:
        return curves
    return curves.loc[curves["optimizer.beta2_half_life"].fillna(0) == 0]


def _kinds(cuts: pd.DataFrame) -> dict[str, tuple[tuple[float, float], np.ndarray]]:
    """Betas and logs of both equal cuts [seed, 2] of batch × 4, by what its betas do.

    Most like the run that goes on first.
    """
    most = tuple(column.max() for column in style.columns(cuts, "beta1", "beta2"))
    names = {
        (True, True): "per step",
        (False, True): "beta1 per token",
        (False, False): "per token",
    }
    kinds = {}
    for pair in sorted({*zip(*style.columns(cuts, "beta1", "beta2"), strict=True)}, reverse=True):
        own = cuts.loc[(cuts["beta1"] == pair[0]) & (cuts["beta2"] == pair[1])]
        kept = tuple(mine == theirs for mine, theirs in zip(pair, most, strict=True))
        logs = np.log2(own[["at_tokens", "at_sums"]].to_numpy(float))
        kinds[f"batch × 4, {names[kept]}"] = pair, logs
    return kinds


def _geometric(logs: np.ndarray) -> list[np.ndarray]:
    """The mean of 2^logs [seed, ...] and the ends of its 95% interval over seeds."""
    mean, half = logs.mean(axis=0), half_interval(logs)
    return [2**mean, 2 ** (mean - half), 2 ** (mean + half)]


def _bars(ax, x: np.ndarray, apart: np.ndarray, look: style.Look) -> None:
    """Means of differences [seed, x] with their 95% intervals."""
    order, mean, half = np.argsort(x), apart.mean(axis=0), half_interval(apart)
    line = (x[order], mean[order], (mean - half)[order], (mean + half)[order])
    style.bars(ax, line, look)
