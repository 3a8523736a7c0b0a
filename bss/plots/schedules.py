"""Batch and learning rate of a plan against tokens."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.plots import style
from bss.schedules.plan import Plan

SAMPLES = 400
RATE = "#c2571a"


def schedule_figure(plan: Plan) -> Figure:
    """Batch in sequences and learning rate of a plan, against tokens consumed.

    The LR is sampled at midpoints of steps, so that a plan of 10^13 tokens takes no longer than a
    small one.

    Args:
        plan: The plan of the run.
    """
    figure, [[top], [bottom]] = style.new_figure(4.4, rows=2, sharex=True, height_ratios=(1.2, 1))
    handles = [*_draw_batch(top, plan), *_draw_rate(bottom, plan)]
    bottom.set_xlabel("tokens consumed")
    bottom.set_xlim(plan.start, plan.budget)
    style.tokens_axis(bottom.xaxis)
    return style.side_legend(figure, handles)


def plot_plan(plan: Plan, ax: Axes | None = None) -> Axes:
    """Plot batch size on axes, and the LR on an axis to their right, against tokens consumed."""
    ax = style.axes_or_new(ax)
    with matplotlib.rc_context(style.SHEET):
        other = ax.twinx()
    other.grid(False)
    other.spines["right"].set_visible(True)
    handles = [*_draw_batch(ax, plan), *_draw_rate(other, plan)]
    ax.set_xlabel("tokens consumed")
    ax.set_xlim(plan.start, plan.budget)
    style.tokens_axis(ax.xaxis)
    ax.legend(handles=handles, frameon=False, fontsize=8, loc="lower center")
    return ax


def _draw_batch(ax: Axes, plan: Plan) -> list[Line2D]:
    """Draw the batch size of every stage."""
    edges = [plan.segments[0].start_tokens, *(s.end_tokens for s in plan.segments)]
    unit = "tokens" if plan.seq_lens else "sequences"
    batches = [s.size if plan.seq_lens else s.batch for s in plan.segments]
    batches.append(batches[-1])
    lines = ax.plot(edges, batches, ds="steps-post", color=style.INK, lw=2, label="batch size")
    ax.set(ylabel=f"batch size ({unit})", ylim=(min(batches) / 1.6, 1.6 * max(batches)))
    style.batch_axis(ax.yaxis, batches)
    return lines


def _draw_rate(ax: Axes, plan: Plan) -> list[Line2D]:
    """Draw the learning rate of sampled steps."""
    lines = ax.plot(*_sampled_rates(plan), color=RATE, lw=1.8, ls="--", label="learning rate")
    ax.set_ylabel("learning rate" if plan.rate is not None else "learning rate (× its peak)")
    ax.set_ylim(bottom=0)
    ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    ax.yaxis.get_offset_text().set_fontsize(8)
    return lines


def _sampled_rates(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Return midpoint tokens and LRs of sampled steps, with the ends of every segment."""
    first = [segment.start_step for segment in plan.segments]
    last = [segment.start_step + segment.steps - 1 for segment in plan.segments]
    length = plan.tokens - plan.start
    even = [plan.step_at(plan.start + length * i // SAMPLES) for i in range(SAMPLES + 1)]
    steps = sorted({min(step, plan.steps - 1) for step in (*first, *last, *even)})
    specs = [plan.at(step) for step in steps]
    midpoints = [(spec.tokens + plan.tokens_at(spec.step + 1)) / 2 for spec in specs]
    return np.array(midpoints), np.array([spec.settings.lr for spec in specs])
