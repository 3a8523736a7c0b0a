"""What fits E(S) and critical batches say of a run that they have not seen, with what is asked.

And registered predictions beside what was measured after.
"""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from bss.laws import CriticalFit, EsFit
from bss.laws.es.predict import best, reach
from bss.laws.fitting.estimate import Estimate
from bss.plots import style
from bss.plots.critical import draw_law, law_handles
from bss.predictions.score import ALL, LAW, Judged, Score

GRID = 41
TITLE = 24  # letters of a title that fit above a panel


def es_figure(fit: EsFit, loss: float, batch: float | None = None) -> Figure:
    """Tokens to a loss against the batch, with the interval of a new run and what was asked.

    Args:
        fit: a fit E(S).
        loss: the target, in nats.
        batch: the one asked, in sequences; without one the law's best batch is marked.
    """
    figure, [[ax]] = style.new_figure(3.2, width=6.4)
    measured = (fit.measured_batches[0], fit.measured_batches[-1])
    ends = [*measured, *([batch] if batch else [])]
    grid = np.geomspace(min(ends), max(ends), GRID)
    tokens = np.array([_ends(reach(fit, loss, float(at))["tokens"]) for at in grid]).T
    ax.plot(grid, tokens[0], color=style.INK, lw=1.5, label=f"{fit.law.name} law")
    label = f"a new run, {fit.level:.0%}"
    ax.fill_between(grid, tokens[1], tokens[2], color=style.INK, alpha=0.13, lw=0, label=label)
    ax.axvspan(*measured, color=style.GRID, alpha=0.35, zorder=0, label="batches fitted")
    if batch:
        value, low, high = _ends(reach(fit, loss, batch)["tokens"])
        spread = np.nan_to_num([[value - low], [high - value]])
        look = {"fmt": "o", "color": "#c2571a", "capsize": 3, "label": "the run asked"}
        ax.errorbar([batch], [value], spread, **look)
    elif (at := best(fit, loss).get("B_opt")) is not None and at.value is not None:
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


def score_figure(score: Score) -> Figure:
    """Measured losses of registered schedules against each prediction, a panel a predictor.

    A hollow mark is a loss outside the law's interval. Schedules that failed have no mark.
    """
    names = list(score.judged[ALL])
    figure, axes = style.new_figure(3.3, columns=len(names), width=2.7 * len(names), sharey=True)
    ended = [(one, one.measured) for one in score.schedules if one.measured is not None]
    looks = style.named_styles(one.ending for one in score.schedules)
    measured = np.array([loss for _, loss in ended])
    line = [measured.min(), measured.max()]
    for ax, name in zip(axes[0], names, strict=True):
        ax.plot(line, line, color=style.FAINT, lw=0.9, zorder=1)
        for one, loss in ended:
            look = looks[one.ending] | ({} if one.covered or name != LAW else {"mfc": "white"})
            ax.plot([one.predicted[name]], [loss], ls="none", ms=5, **look)
        ax.set_ylim(line[0] - 0.35 * (line[1] - line[0]))  # room for the scores
        text = _scores(score.judged[ALL][name])
        ax.text(0.98, 0.03, text, ha="right", va="bottom", size=style.SMALL, transform=ax.transAxes)
        title = textwrap.fill(name, TITLE)
        style.panel_title(ax, title, xlabel="predicted (nats per token)")
    axes[0, 0].set_ylabel("measured (nats per token)")
    entries = [*style.handles(looks, ls="none", ms=5), style.handle("equal", color=style.FAINT)]
    return style.side_legend(figure, [*entries, style.hollow("outside the\nlaw's interval", ms=5)])


def _scores(judged: Judged) -> str:
    """Error and rank correlation as the panels tell them, where there are any."""
    lines = [
        f"median error {judged.error.value:.2f}%" if judged.error.value is not None else "",
        f"rank correlation {judged.rank.value:.2f}" if judged.rank.value is not None else "",
    ]
    return "\n".join(filter(None, lines))


def _ends(estimate: Estimate) -> np.ndarray:
    """Value, low and high; NaN for what is not known."""
    return np.array([estimate.value, estimate.low, estimate.high], float)
