"""Figures of what decides the best batch size, from the tables of the parts."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.laws import EsFit
from bss.plots import style
from bss.points.crossings import crossing_pairs, crossings
from bss.stats import LR_PHASES, half_interval
from experiments.second_moment import analysis
from experiments.second_moment.crossing_figure import crossing_figure
from experiments.second_moment.losses import Cell, Part, phases_of
from experiments.shared import clocks_figure, lined_styles, mean_curve

CURVES = {LR_PHASES[ending].short: column for ending, column in analysis.LOSSES.items()}
SMALLEST, REFERENCE = 1, "2"
MOST_ABOVE = 45.0  # 1e-3 nats above the best; batches beyond are not in question
_GREY = {"color": style.FAINT, "lw": 1.0}


def best_batch_figure(losses: Mapping[Cell, pd.DataFrame], seq_len: int) -> Figure:
    """Draw loss above each line's best batch size, one panel per LR phase.

    Bars are 95% intervals, before any correction, of the mean difference to that batch, paired by
    seed. The best batch size, without a bar, is a larger mark, hollow if it is the smallest or the
    largest. Batch sizes far above the best leave the panel.

    Args:
        losses: [batch, seed] in nats per token, by name of the line and LR phase.
        seq_len: Tokens of a sequence.
    """
    endings = phases_of(losses)
    names = list(dict.fromkeys(name for name, _ in losses))
    looks = lined_styles(names, ("-", "--", ":", "-."))
    width = 2.4 * max(len(endings), 2) + 2
    figure, axes = style.new_figure(2.9, 1, max(len(endings), 1), width, sharey=True)
    near: set[float] = set()
    for ax, ending in zip(axes[0], endings, strict=False):
        for (name, own), table in losses.items():
            if own == ending:
                tokens, above, half = _above_best(table.sort_index(), seq_len)
                near |= {*tokens[1e3 * above < MOST_ABOVE]}
                tokens = tokens * 1.1 ** (names.index(name) - (len(names) - 1) / 2)
                _thousandth_bars(ax, tokens, above, half, looks[name])
                best = int(np.argmin(above))
                inside = 0 < best < len(above) - 1
                mark = {**looks[name], "linestyle": "none", **({} if inside else {"mfc": "white"})}
                ax.plot(tokens[best], 0, ms=9, zorder=5, **mark)
        style.batch_axis(ax.xaxis, near)
        ax.set_xlim(min(near) / 1.5, max(near) * 1.5)
        style.panel_title(ax, LR_PHASES[ending].short, xlabel="batch (tokens)")
    axes[0, 0].set_ylim(-0.1 * MOST_ABOVE, MOST_ABOVE)
    axes[0, 0].set_ylabel("test loss above the line's\nbest batch (1e-3 nats per token)")
    edge = style.hollow("best at the smallest or\nlargest: a bound", ms=9)
    best = style.handle("best batch", ls="none", marker="o", ms=9, color=style.INK)
    return style.side_legend(figure, [*style.handles(looks, ms=5.5, lw=1.4), best, edge])


def _above_best(table: pd.DataFrame, seq_len: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tokens, mean loss above the best, and half of its interval, each [batch]."""
    losses = table.to_numpy(float)
    apart = losses - losses[int(np.argmin(losses.mean(axis=1)))]
    return seq_len * table.index.to_numpy(float), apart.mean(axis=1), half_interval(apart.T)


def half_lives_figure(by_ending: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw losses against the half-life of the second moment, one line per batch size.

    Columns are LR phases. Top: losses. Bottom: losses minus those of the batch's best rule, with
    intervals paired by seed. One curve for all batches would mean that the half-life alone decides.

    Args:
        by_ending: Tables of `analysis.half_lives`.
    """
    batches = sorted({float(b) for table in by_ending.values() for b in table["batch"]})
    looks = style.batch_styles(batches)
    size = {"width": 2.5 * max(len(by_ending), 2) + 1.6, "sharex": True, "sharey": "row"}
    figure, axes = style.new_figure(5.2, 2, max(len(by_ending), 1), **size)
    for (top, bottom), (ending, table) in zip(axes.T, by_ending.items(), strict=True):
        bottom.axhline(0, color=style.INK, lw=0.8, zorder=1)
        for batch, look in looks.items():
            rows = table.loc[table["batch"] == batch].sort_values("tokens")
            x, loss, above, half = style.columns(rows, "tokens", "loss", "above", "half")
            top.plot(x, loss, lw=1.3, ms=5, **look)
            _thousandth_bars(bottom, x, above, half, look)
        style.panel_title(top, LR_PHASES[ending].short)
        bottom.set_xscale("log")
        bottom.set_xlabel("half-life (tokens)")
        style.tokens_axis(bottom.xaxis, most=4)
    axes[0, 0].set_ylabel("test loss (nats per token)")
    axes[1, 0].set_ylim(-0.25 * MOST_ABOVE, MOST_ABOVE)
    axes[1, 0].set_ylabel("above the batch's best\nrule (1e-3 nats per token)")
    bars = style.handle("bars: 95% intervals,\npaired by seed", ls="none")
    return style.side_legend(figure, [*style.handles(looks, "batch {:g}", lw=1.3, ms=5), bars])


def switches_figure(
    panels: Mapping[str, Mapping[str, pd.DataFrame]], reference: str, constants: Collection[str]
) -> Figure:
    """Draw losses of constants and growing batches minus those of one constant, over tokens.

    Constants are grey and named at their ends.

    Args:
        panels: Tables of `analysis.differences` by title.
        reference: The constant that is subtracted.
        constants: Names of constants.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    grown = lined_styles(name for name in names if name not in constants)
    size = {"width": 3.5 * max(len(panels), 1) + 2.4, "sharey": True}
    figure, axes = style.new_figure(3.9, 1, max(len(panels), 1), **size)
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        ax.axhline(0, color=style.INK, lw=0.9, zorder=1)
        for i, (name, table) in enumerate(lines.items()):
            x, value, low, high = style.columns(table, "tokens", "difference", "low", "high")
            look = grown.get(name, _GREY)
            ax.fill_between(x, 1e3 * low, 1e3 * high, color=look["color"], alpha=0.15, lw=0)
            ax.plot(x, 1e3 * value, ms=4, markevery=(i % 4, 4), **{"lw": 1.4, **look})
        _name_constants(ax, {name: lines[name] for name in lines if name not in grown})
        style.panel_title(ax, title, xlabel="tokens consumed")
        style.tokens_axis(ax.xaxis)
    label = f"held-out loss minus that of constant\n{reference} (1e-3 nats per token)"
    axes[0, 0].set_ylabel(label)
    zero = style.handle(f"constant {reference}", color=style.INK, lw=0.9)
    entries = [*style.handles(grown, lw=1.4, ms=4), zero, style.handle("other constants", **_GREY)]
    entries.append(style.handle("bands: 95% intervals,\npaired by seed", ls="none"))
    return style.side_legend(figure, entries)


def _name_constants(ax: Axes, lines: Mapping[str, pd.DataFrame]) -> None:
    """Write the names of constants right of their lines, none on another."""
    ends = sorted(
        (1e3 * float(table["difference"].iloc[-1]), name) for name, table in lines.items()
    )
    low, high = ax.get_ylim()
    least = -np.inf
    for end, name in ends:
        least = max(end, least + 0.05 * (high - low))
        at = float(lines[name]["tokens"].iloc[-1]), least
        place = {"textcoords": "offset points", "va": "center", "size": 8}
        ax.annotate(name, at, (4, 0), color="#555555", **place)


def beta2_figure(beta2: pd.DataFrame) -> Figure:
    """Draw a public table of losses by batch size and beta2, one panel per width.

    Args:
        beta2: Columns d_model, batch, beta2, c4_en_bpb.
    """
    widths = sorted(set(beta2["d_model"]))
    figure, axes = style.new_figure(3.4, 1, len(widths), 2.8 * len(widths) + 2)
    looks = style.named_styles(sorted(set(beta2["beta2"])))
    for ax, width in zip(axes[0], widths, strict=True):
        for value, look in looks.items():
            rows = beta2.loc[(beta2["d_model"] == width) & (beta2["beta2"] == value)]
            x, loss = style.columns(rows.sort_values("batch"), "batch", "c4_en_bpb")
            best = int(np.argmin(loss))
            ax.plot(x, loss, lw=1.3, ms=4, **look)
            ax.plot(x[best], loss[best], ls="none", ms=10, mfc="none", mew=1.3, **look)
        style.batch_axis(ax.xaxis, set(beta2["batch"]))
        style.panel_title(ax, f"d_model {width}", xlabel="batch (sequences)")
    axes[0, 0].set_ylabel("loss (bits per byte)")
    entries = style.handles(looks, "beta2 {:g}", lw=1.3, ms=4)
    best = style.handle("best batch\nof the line", ls="none", marker="o", ms=9, color=style.INK)
    return style.side_legend(figure, [*entries, best])


def _thousandth_bars(
    ax: Axes, x: np.ndarray, above: np.ndarray, half: np.ndarray, look: dict[str, Any]
) -> None:
    """Draw differences in 1e-3 nats with their bars."""
    style.bars(ax, (x, 1e3 * above, 1e3 * (above - half), 1e3 * (above + half)), look)


def rules(part: Part) -> Figure:
    """Draw final losses of constant batch sizes by rule and LR phase, each at its best LR."""
    return best_batch_figure(part.judged, part.seq_len)


def long(part: Part, points: pd.DataFrame, fits: Mapping[str, EsFit]) -> Figure:
    """Draw constant batch sizes whose curves cross, and E(S) at two targets."""
    pairs = [pair for pair in crossing_pairs(crossings(points)) if pair[0] == SMALLEST]
    reached = analysis.reached(points)
    common = reached.index[(reached > 0).sum(axis=1) >= min(8, reached.shape[1])]
    ends = (float(common[len(common) // 2]), float(common[-1]))
    return crossing_figure(part.at_one_rate().runs, pairs, points, fits, ends)


def switches(part: Part) -> Figure:
    """Draw schedules and constants minus one constant at equal tokens."""
    panels = {
        title: analysis.differences(part, column, REFERENCE) for title, column in CURVES.items()
    }
    return switches_figure(panels, REFERENCE, analysis.constants(part))


def clocks(part: Part, steps: Part) -> Figure:
    """Draw a growing batch size and its constants, at equal tokens and at equal steps."""
    curves: dict[str, pd.DataFrame] = {}
    for batch, rows in part.at_one_rate().runs.groupby("schedule.batch", sort=False):
        curves[part.short(str(batch))] = mean_curve(rows)
    longer = steps.at_one_rate().runs
    largest = longer["batch"].max()
    curves[f"{largest}, as many steps"] = mean_curve(longer.loc[longer["batch"] == largest])
    return clocks_figure(curves)
