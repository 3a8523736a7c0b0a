"""One run: its losses and the stages of its batch, against tokens."""

import pandas as pd
from matplotlib.figure import Figure

from bss.plots import style


def run_figure(curve: pd.DataFrame) -> Figure:
    """Held-out losses, and the training loss between evaluations, over the batch of each row.

    Args:
        curve: a run table of one run.
    """
    figure, axes = style.new_figure(4.8, rows=2, sharex=True, height_ratios=(2, 1))
    top, bottom = axes[:, 0]
    tokens, batch = style.columns(curve, "tokens", "batch")
    handles = top.plot(
        tokens, *style.columns(curve, "loss"), color=style.FAINT, lw=1.2, label="training"
    )
    for name in [n for n in curve.columns if n.startswith("eval_loss")]:
        average = name.removeprefix("eval_loss").removeprefix("_avg_")
        label = f"held-out, average of {average}" if average else "held-out"
        look = {"linestyle": "--"} if average else {"color": style.INK}
        handles += top.plot(tokens, *style.columns(curve, name), lw=1.8, label=label, **look)
    top.set_ylabel("loss (nats per token)")
    bottom.plot(tokens, batch, drawstyle="steps-pre", color=style.INK, lw=2)
    bottom.set_yscale("log", base=2)
    bottom.set_ylim(batch.min() / 1.6, 1.6 * batch.max())
    style.batch_axis(bottom.yaxis, batch)
    bottom.set(xlabel="tokens consumed", ylabel="batch (sequences)", xscale="log")
    style.tokens_axis(bottom.xaxis)
    return style.side_legend(figure, handles)
