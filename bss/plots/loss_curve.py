"""The functional scaling law beside the loss curves it was fitted to."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bss.laws import CurveFit, predict_runs
from bss.plots import style

MOST = 10


def fitted_curves(fit: CurveFit, runs: pd.DataFrame, *, warmup: int = 0) -> Figure:
    """Loss against tokens as measured (marks) and by the law (lines), and the law's errors.

    Where there are more kinds of schedule than can be told apart, as many are drawn, the runs
    between left out; the errors are of the runs drawn.

    Args:
        fit: the law; where it did not converge only the measurements are drawn.
        runs: a run table.
        warmup: as in `bss.laws.functional.fit.fit_curve`.
    """
    table = predict_runs(fit, runs, warmup=warmup)
    names = _names(runs)
    kinds = list(dict.fromkeys(names.values()))
    shown = np.unique(np.linspace(0, len(kinds) - 1, MOST).astype(int))
    styles = style.named_styles(kinds[i] for i in shown)
    figure, axes = style.new_figure(5.6, rows=2, sharex=True, height_ratios=(1.7, 1))
    top, bottom = axes[:, 0]
    drawn = fit.status != "not converged"
    for run, rows in table.groupby("run", sort=False):
        look = styles.get(names[str(run)])
        if look is None:
            continue
        at, loss, predicted = rows["tokens"], rows["loss"], rows["predicted"]
        top.plot(at, loss, ls="none", ms=3.5, mec="white", mew=0.3, **look)
        if drawn:
            top.plot(at, predicted, color=look["color"], lw=1.2)
            bottom.plot(at, 100 * np.log(predicted / loss), lw=1, ms=3.5, **look)
    bottom.axhline(0, color=style.FAINT, linewidth=0.8, zorder=1)
    note = f"{fit.clock} clock, rms error {fit.rmse:.2%}"
    style.panel_title(top, "functional scaling law", note if drawn else "no fit: not converged")
    top.set_ylabel("loss (nats per token)")
    bottom.set(xlabel="tokens consumed", ylabel="error of the law (%)", xscale="log")
    style.tokens_axis(bottom.xaxis)
    return style.side_legend(figure, style.handles(styles, lw=1.2, ms=4), "batch (lr)")


def _names(runs: pd.DataFrame) -> dict[str, str]:
    """What to call each run: its batches, and the peak rate where that is not the same for all."""
    rates = "lr" if "lr" in runs else "peak_lr" if "peak_lr" in runs else None
    peaks = {} if rates is None else {run: rows[rates].max() for run, rows in runs.groupby("run")}
    several = len({f"{peak:.3g}" for peak in peaks.values()}) > 1
    entries = []
    for run, rows in runs.groupby("run", sort=False):
        every = rows["batch"].tolist()
        batches = [b for i, b in enumerate(every) if i == 0 or b != every[i - 1]]
        short = batches if len(batches) < 4 else [batches[0], "…", batches[-1]]
        text = "→".join(str(b) for b in short)
        name = f"{text} ({peaks[run]:.3g})" if several else text
        entries.append((len(batches), batches, peaks.get(run, 0.0), str(run), name))
    return {run: name for *_, run, name in sorted(entries)}
