"""Figures of what fits E(S) and critical batches predict of a run that was not trained."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.laws import CriticalFit, EsFit
from bss.plots import style
from bss.plots.critical import draw_law, law_handles

GRID = 41


def es_figure(fit: EsFit, loss: float, batch: float | None = None) -> Figure:
    """Tokens to a loss against the batch, with the interval of a new run and what was asked.

    Args:
        fit: a fit E(S).
        loss: the target, in nats.
        batch: the one asked, in sequences; without one the law's best batch is marked.
    """
    figure, [[ax]] = style.new_figure(3.2, width=6.4)
    measured = (fit.batches[0], fit.batches[-1])
    ends = [*measured, *([batch] if batch else [])]
    grid = np.geomspace(min(ends), max(ends), GRID)
    table = pd.DataFrame({"batch": [*grid, *([batch] if batch else [])], "target_loss": loss})
    tokens, low, high = fit.predict(table)[["tokens", "low", "high"]].to_numpy(float).T
    ax.plot(grid, tokens[:GRID], color=style.INK, lw=1.5, label=f"{fit.law.name} law")
    label = f"a new run, {fit.level:.0%}"
    ax.fill_between(grid, low[:GRID], high[:GRID], color=style.INK, alpha=0.13, lw=0, label=label)
    ax.axvspan(*measured, color=style.GRID, alpha=0.35, zorder=0, label="batches fitted")
    if batch:
        spread = np.nan_to_num([tokens[-1:] - low[-1:], high[-1:] - tokens[-1:]])
        look = {"fmt": "o", "color": "#c2571a", "capsize": 3, "label": "the run asked"}
        ax.errorbar([batch], tokens[-1:], spread, **look)
    elif (at := fit.best_batches(loss).get("B_opt")) is not None and at.value is not None:
        ax.axvline(at.value, color="#c2571a", lw=1, ls="--", label="B_opt")
        if at.low is not None and at.high is not None:
            ax.axvspan(at.low, at.high, color="#c2571a", alpha=0.15, lw=0)
    ax.set(yscale="log")
    style.batch_axis(ax.xaxis)
    style.tokens_axis(ax.yaxis)
    ax.set(xlabel="batch (sequences)", ylabel="tokens to the loss")
    style.panel_title(ax, f"loss {loss:g}")
    return style.side_legend(figure, ax.get_legend_handles_labels()[0])


def critical_figure(fit: CriticalFit, variable: str, value: float) -> Figure:
    """The law of critical batches in one variable, extended to what was asked.

    Args:
        fit: critical batches with a law in the variable.
        variable: "params" or "tokens".
        value: of the variable, as asked.
    """
    figure, [[ax]] = style.new_figure(3.2, width=7.0)
    draw_law(ax, fit, variable, [value])
    style.tokens_axis(ax.xaxis, most=4)
    style.count_axis(ax.yaxis)
    return style.side_legend(figure, law_handles(fit.level))
