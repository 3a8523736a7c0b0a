"""Final loss against the batch, a line for whatever is compared: where the best batch lies."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style
from bss.points.contrasts import half_interval
from bss.points.standings import ENDINGS

_LINES = ("-", "--", ":", "-.")
_TICKS = (0, 5, 10, 30, 100, 300, 1000)


def best_batch_figure(
    losses: Mapping[tuple[str, str], pd.DataFrame], seq_len: int, level: float = 0.95
) -> Figure:
    """Loss above each line's best batch, a panel for each ending.

    Bars are intervals, before any correction, of the mean difference to that batch, paired by
    seed; the best batch, without a bar, is a larger mark, hollow where it is an end.

    Args:
        losses: [batch, seed] in nats per token, by name of the line and ending.
        seq_len: tokens of a sequence.
        level: of the bars.
    """
    endings = [ending for ending in ENDINGS if any(own == ending for _, own in losses)]
    looks = style.named_styles(name for name, _ in losses)
    for look, line in zip(looks.values(), _LINES * len(looks), strict=False):
        look["linestyle"] = line
    width = 2.4 * max(len(endings), 2) + 2
    figure, axes = style.new_figure(2.9, 1, max(len(endings), 1), width, sharey=True)
    for ax, ending in zip(axes[0], endings, strict=False):
        for (name, own), table in losses.items():
            if own == ending:
                tokens, above, half = _above_best(table.sort_index(), seq_len, level)
                ends = 1e3 * (above - half), 1e3 * (above + half)
                style.bars(ax, tokens, 1e3 * above, *ends, looks[name])
                best = int(np.argmin(above))
                inside = 0 < best < len(above) - 1
                face = {} if inside else {"mfc": "white"}
                mark = {**looks[name], "linestyle": "none", **face}
                ax.plot(tokens[best], 0, ms=9, zorder=5, **mark)
        ax.set_yscale("symlog", linthresh=10)
        ax.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        batches = {b * seq_len for table in losses.values() for b in table.index}
        style.batch_axis(ax.xaxis, batches)
        style.panel_title(ax, ENDINGS[ending].short, xlabel="batch (tokens)")
    axes[0, 0].set_ylabel("test loss less that of the line's\nbest batch (1e-3 nats per token)")
    edge = style.handle(
        "best at an end:\na bound", ls="none", marker="o", ms=9, mfc="white", mec=style.INK
    )
    best = style.handle("best batch", ls="none", marker="o", ms=9, color=style.INK)
    return style.side_legend(figure, [*style.handles(looks, ms=5.5, lw=1.4), best, edge])


def _above_best(
    table: pd.DataFrame, seq_len: int, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of each batch, mean loss above the best one, and half the interval, [batch]."""
    losses = table.to_numpy(float)
    apart = losses - losses[int(np.argmin(losses.mean(axis=1)))]
    half = half_interval(apart.T, level)
    return seq_len * table.index.to_numpy(float), apart.mean(axis=1), half
