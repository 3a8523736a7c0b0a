"""Figures of what decides the best batch size, from the tables of the parts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.plots import style
from bss.stats import LR_PHASES, half_interval
from experiments.second_moment.losses import Cell, phases_in

MOST_ABOVE = 45.0  # 1e-3 nats above the best; batches beyond are not in question


def best_batch_figure(losses: Mapping[Cell, pd.DataFrame], seq_len: int) -> Figure:
    """Draw loss above each line's best batch size, one panel per LR phase.

    Bars are 95% intervals, before any correction, of the mean difference to that batch, paired by
    seed. The best batch size, without a bar, is a larger mark, hollow if it is the smallest or the
    largest. Batch sizes far above the best leave the panel.

    Args:
        losses: [batch, seed] in nats per token, by name of the line and LR phase.
        seq_len: Tokens of a sequence.
    """
    endings = phases_in(losses)
    names = list(dict.fromkeys(name for name, _ in losses))
    looks = style.lined_styles(names, ("-", "--", ":", "-."))
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

    Columns are LR phases. Top: losses. Bottom: losses relative to the best rule of the batch size,
    with intervals paired by seed. If all batch sizes fell on one curve, only the half-life would
    matter.

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
