"""Registered predictions beside what was measured after."""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from bss.plots import style
from bss.predictions.score import ALL, LAW, Judged, Score

TITLE = 24  # letters of a title that fit above a panel


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
