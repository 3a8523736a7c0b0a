"""Figures of public runs, from the tables that `python -m experiments.published` writes."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.optima import PUBLISHED, derived_optima, table_optima
from bss.advice.sources import EUROLLM, TABLE
from bss.plots import style
from experiments.published.analysis import DERIVED

SHOWN = {"zhang": "Zhang et al., 85M–1.2B", "mlperf curves": "MLPerf 8B, four losses"}
MODELS = {
    "bert_large": "MLPerf 334M encoder",
    "llama31_8b": "MLPerf 8B, points",
    "gpt3_175b": "MLPerf 175B, from a checkpoint",
}
GROUPS = {
    "cosine, constant batch below 1M tokens": "Seesaw, cosine, below 1M tokens",
    "cosine, constant batch 1M tokens or more": "Seesaw, cosine, above 1M tokens",
    "step decay": "Seesaw, step decay",
    "cosine, ramp without decay": "Seesaw, no decay but a ramp",
    "not decayed to 0, constant batch 4.19M tokens": "OLMo 1B, before the decay (confounded)",
    "decayed to 0, constant batch 4.19M tokens": "OLMo 1B, after the decay (confounded)",
    "decayed; LRs, windows and tokens differ too": "modded-nanogpt (confounded)",
}
OURS = {
    "late_constant": "ours, 12k parameters, constant LR",
    "averaged_other": "ours, 12k parameters, averaged",
    "decayed_other": "ours, 12k parameters, after a decay",
}
INK = "#10375c"
OTHER = "#c2571a"


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(DERIVED / f"{name}.csv")


def _errors(table: pd.DataFrame, value: str) -> np.ndarray:
    """Return the lengths of error bars [2, row]."""
    return np.abs(table[["low", "high"]].to_numpy().T - table[value].to_numpy())


def critical_figure() -> Figure:
    """Draw b/a against the tokens to the loss, by source, with 95% intervals."""
    table = _read("critical")
    points = table["source"] == "mlperf points"
    names = table["model"].map(MODELS).where(points, table["source"].map(SHOWN))
    figure, axes = style.new_figure(3.6)
    ax = axes[0, 0]
    looks = style.lined_styles([*SHOWN.values(), *MODELS.values()])
    for name, look in looks.items():
        rows = table[names == name].sort_values("tokens")
        ax.errorbar(rows["tokens"], rows["kappa"], _errors(rows, "kappa"), capsize=2, **look)
    ax.set(xscale="log", yscale="log")
    style.tokens_axis(ax.xaxis)
    style.tokens_axis(ax.yaxis)
    labels = {"xlabel": "least tokens to the loss", "ylabel": "critical batch size b/a (tokens)"}
    style.panel_title(ax, "Critical batch size over tokens", "95% intervals", **labels)
    return style.side_legend(figure, style.handles(looks))


def minimum_figure() -> Figure:
    """Draw the tokens of batch 16 over batch 32 at 8B, and the soonest batch size."""
    figure, (left, right) = style.panels(2, 3.0)
    table = _read("minimum_8b")
    ratio = np.exp(table["log_tokens"])
    bars = np.exp(table["log_tokens"] + 2 * table["error"]) - ratio
    left.errorbar(table["target_loss"], ratio, bars, color=INK, marker="o", capsize=2)
    left.axhline(1, color=style.FAINT, linewidth=1)
    left.set_xlim(*style.falling(table["target_loss"].tolist()))
    labels = {"xlabel": "target loss (nats)", "ylabel": "tokens of batch 16 / batch 32"}
    style.panel_title(left, "8B: no minimum inside", "± 2 errors", **labels)
    times = _read("soonest_8b")
    right.errorbar(
        times["seconds_per_step"] / times["seconds_per_sequence"],
        times["batch"],
        _errors(times, "batch"),
        color=OTHER, marker="s", capsize=2,
    )  # fmt: skip
    right.set(xscale="log", yscale="log", ylim=(16, 128), xlim=(4, 80))
    style.count_axis(right.xaxis)
    style.count_axis(right.yaxis)
    labels = {
        "xlabel": "seconds per step / seconds per sequence",
        "ylabel": "soonest batch size (sequences)",
    }
    style.panel_title(right, "Shortest time, loss 3.3", "95% intervals", **labels)
    return figure


def growth_figure() -> Figure:
    """Draw the best batch sizes of two sources over tokens, with their common power of D."""
    figure, axes = style.new_figure(3.6)
    ax = axes[0, 0]
    known = {TABLE: table_optima(), EUROLLM: derived_optima(EUROLLM)}
    power = _read("exponents").set_index(["source", "exponent"])["value"]
    looks = style.lined_styles(known)
    for name, look in looks.items():
        inside = [(at.tokens, at.value) for at in known[name] if at.value]
        tokens, best = np.array(inside).T
        mark = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
        ax.plot(tokens, best, alpha=0.7, **mark)
        line = np.geomspace(tokens.min(), tokens.max(), 2)
        middle = np.exp(np.mean(np.log(best)) - power[name, "D"] * np.mean(np.log(tokens)))
        slope = {"color": look["color"], "linestyle": look["linestyle"]}
        ax.plot(line, middle * line ** power[name, "D"], **slope)
    ax.set(xscale="log", yscale="log")
    style.tokens_axis(ax.xaxis)
    style.tokens_axis(ax.yaxis)
    labels = {"xlabel": "token budget", "ylabel": "best batch size (tokens)"}
    style.panel_title(ax, "Best batch size over tokens, 48M–1.7B parameters", **labels)
    return style.side_legend(figure, style.handles(looks))


def ramps_figure() -> Figure:
    """Draw the loss of a growing batch size minus a fixed one, public and ours."""
    pairs = _read("ramp_pairs")
    figure, axes = style.new_figure(3.8)
    ax = axes[0, 0]
    names = [*GROUPS.values(), *OURS.values()]
    for at, group in enumerate(GROUPS):
        values = pairs.loc[pairs["group"] == group, "mnats"].to_numpy()
        ax.plot(values, np.full(len(values), at), "o", color=INK, alpha=0.7)
    ours = pd.read_csv(PUBLISHED.parent / "late_switch/findings.csv").set_index("key")
    ours = 1e3 * ours.loc[[*OURS], ["effect", "low", "high"]]
    place = len(GROUPS) + np.arange(len(OURS))
    ax.errorbar(
        ours["effect"], place, xerr=_errors(ours, "effect"), fmt="s", color=OTHER, capsize=2
    )
    ax.axvline(0, color=style.FAINT, linewidth=1)
    ax.set_xscale("symlog", linthresh=10)
    ax.set_xlim(-100, 1000)
    ticks = [-100, -10, 0, 10, 100]
    ax.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    labels = {"xlabel": "loss, growing minus fixed batch size (10⁻³ nats)"}
    style.panel_title(ax, "A growing batch size", "one mark per pair; ours with 95% CI", **labels)
    return figure


def penalties_figure() -> Figure:
    """Draw the penalty of a large batch by optimizer, and of branches by checkpoint."""
    figure, (left, right) = style.panels(2, 3.0, beside=1.3)
    table = _read("penalties")
    table = table[table["family"] == "standard_wd"]
    looks = style.lined_styles(["Lion", "Adam", "SOAP", "Muon", "Shampoo"])
    for name, look in looks.items():
        rows = table[table["optimizer"] == name]
        left.errorbar(rows["batch_tokens"], rows["mnats"], 2 * rows["error"], capsize=2, **look)
    left.set_xscale("log")
    left.set_xlim(4.5e5, 2.5e6)
    style.tokens_axis(left.xaxis, most=3)
    labels = {"xlabel": "batch size (tokens)", "ylabel": "loss above 131K (10⁻³ nats)"}
    style.panel_title(left, "By optimizer, 85M", "± 2 errors", **labels)
    branches = _read("branches")
    right.plot(branches["checkpoint_tokens"], branches["penalty_mnats"], "o-", color=INK)
    right.set(xscale="log", yscale="log")
    style.tokens_axis(right.xaxis)
    style.count_axis(right.yaxis)
    labels = {"xlabel": "tokens before the branch", "ylabel": "penalty (10⁻³ nats)"}
    style.panel_title(right, "By checkpoint, Muon", "hidden matrices only", **labels)
    return style.side_legend(figure, style.handles(looks))


def rates_figure() -> Figure:
    """Draw the powers of the best LR in the batch size, and the gains of a tuned beta2."""
    figure, (left, right) = style.panels(2, 3.0, beside=1.2)
    powers = _read("lr_powers")
    for at, source in enumerate((TABLE, EUROLLM)):
        values = powers.loc[powers["source"] == source, "power"].to_numpy()
        left.plot(at + np.linspace(-0.2, 0.2, len(values)), values, "o", color=INK, alpha=0.5)
        left.plot([at - 0.3, at + 0.3], [values.mean()] * 2, color=OTHER)
    left.axhline(0.5, color=style.FAINT, linewidth=1, linestyle="--")
    left.set_xticks(range(2), [TABLE, EUROLLM])
    labels = {"ylabel": "power of the batch size"}
    style.panel_title(left, "Best LR", "dashes: square root; bars: means", **labels)
    gains = _read("beta2_gains")
    looks = style.lined_styles([f"width {width}" for width in gains["d_model"].unique()])
    for (_, rows), look in zip(gains.groupby("d_model"), looks.values(), strict=True):
        right.plot(rows["batch"], rows["gain"], **look)
    style.batch_axis(right.xaxis, gains["batch"].unique())
    labels = {"xlabel": "batch size (sequences)", "ylabel": "gain (10⁻³ bits per byte)"}
    style.panel_title(right, "Tuned beta2 against 0.95", **labels)
    return style.side_legend(figure, style.handles(looks))
