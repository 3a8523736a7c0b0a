"""Loss against tokens: of fixed batch sizes, of runs that change theirs, and by a fitted law."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.laws import CurveFit
from bss.plots import style
from bss.points.batches import batch_curves, excess
from bss.points.conditions import near_as_one
from bss.points.curve import Smooth, loss_column

MOST = 10
MARKS = 60_000  # losses drawn of all runs
GAP = np.full((1, 2), np.nan)  # between two runs of a line


def loss_curves(runs: pd.DataFrame, targets: Sequence[float]) -> Figure:
    """Plot the loss of each fixed batch size, and its excess over the best at equal tokens.

    The upper panel has the losses as measured, and marks where the monotone fit to each run
    (`bss.points.curve`) first meets a target. The lower one, of several batches, has the excess of
    that fit, averaged over seeds: where the line at zero changes, the best batch changes.

    Args:
        runs: a run table; runs that change their batch are left out.
        targets: losses in nats.

    Raises:
        InputError: If no run has a fixed batch size and at least 3 losses.
    """
    column = loss_column(runs)
    curves = batch_curves(runs, column)
    looks = style.batch_styles(curve.batch for curve in curves)
    ratios = (1.7, 1) if len(looks) > 1 else (1,)
    height = 2.2 + 1.55 * sum(ratios)
    figure, axes = style.new_figure(height, rows=len(ratios), sharex=True, height_ratios=ratios)
    top = axes[0, 0]
    bottom = axes[-1, 0]
    for target in targets:
        top.axhline(target, color=style.FAINT, linewidth=0.8, zorder=1)
    for batch, look in looks.items():
        some = [curve for curve in curves if curve.batch == batch]
        # one line with gaps draws faster than a line for each of hundreds of runs
        parts = [np.vstack([_losses(one.fit, len(curves)), GAP]) for one in some]
        top.plot(*np.concatenate(parts).T, color=look["color"], linewidth=1.5)
        met = [
            (_first_below(one.fit, t), t) for one in some for t in targets if _crosses(one.fit, t)
        ]
        top.plot(
            *np.reshape(met, (-1, 2)).T, ls="none", ms=5.5, mec="white", mew=0.5, zorder=3, **look
        )
    above: list[float] = []
    if len(looks) > 1:
        above = _draw_excess(bottom, *excess(curves), looks)
    lowest = min(float(curve.fit.loss[-1]) for curve in curves)
    highest = max(float(curve.fit.loss[0]) for curve in curves)
    if targets:
        highest = min(highest, max(targets) + 0.35 * (max(targets) - lowest))
    margin = 0.04 * (highest - lowest)
    top.set(ylim=(lowest - margin, highest + margin), ylabel=_noun(column))
    bottom.set(xlabel="tokens consumed", xscale="log")
    style.tokens_axis(bottom.xaxis)
    entries = style.handles(looks, "{:,.10g}", lw=1.5, ms=5)
    if targets:
        entries.append(style.handle("target loss", color=style.FAINT, lw=0.8))
    if above:
        listed = ", ".join(f"{batch:,.10g}" for batch in above)
        entries.append(style.handle(f"{listed}: ends above\nthe lower panel", ls="none"))
    return style.side_legend(figure, entries, "batch (sequences)")


def _losses(fit: Smooth, runs: int) -> np.ndarray:
    """Return tokens and measured losses [n, 2] of one of several runs, as many as are drawn."""
    rows = np.stack([fit.tokens, fit.measured], axis=1)
    rows = rows[~np.isnan(fit.measured)]
    return rows[_thinned(len(rows), runs)]


def _crosses(fit: Smooth, target: float) -> bool:
    return bool(fit.loss[-1] <= target < fit.loss[0])


def _first_below(fit: Smooth, target: float) -> float:
    """Return the tokens at which a curve first meets a target."""
    return float(np.exp(np.interp(-target, -fit.loss, fit.log_tokens)))


def _draw_excess(
    ax: Axes, tokens: np.ndarray, above: dict[float, np.ndarray], looks: dict
) -> list[float]:
    """Draw the excess of each batch size; return the batch sizes whose curve leaves the panel at
    the top."""
    for i, (batch, look) in enumerate(looks.items()):
        offset = (i * 2, 2 * len(looks))
        ax.plot(tokens, above[batch], **look, markevery=offset, ms=4, linewidth=1.5)
    ax.set_ylabel("excess over the best\nbatch (nats per token)")
    # The best batches change places in a narrow band; those far from it may leave the panel.
    known = {batch: loss[np.isfinite(loss)] for batch, loss in above.items()}
    last = {batch: loss[-1] for batch, loss in known.items() if len(loss)}
    top = max(2 * float(np.quantile([*last.values()], 0.7)), 1e-3)
    ax.set_ylim(-0.04 * top, top)
    return [batch for batch, loss in last.items() if loss > top]


def varied_curves(runs: pd.DataFrame) -> Figure:
    """Losses of runs whose batch or rate changes, over the batch of each.

    If there are too many kinds of schedule to distinguish, an even selection is drawn. Losses far
    above the others, of starts or after divergence, leave the panel.

    Args:
        runs: a run table.
    """
    column = loss_column(runs)
    names = _names(runs)
    kinds = len(set(names.values()))
    looks = _told_apart(names.values())
    figure, [[top], [bottom]] = style.new_figure(5.2, rows=2, sharex=True, height_ratios=(1.7, 1))
    for look, rows in _drawn(runs, names, looks):
        known = rows.loc[rows[column].notna()]
        seen = known.iloc[_thinned(len(known), len(names))]
        top.plot(seen["tokens"], seen[column], color=look["color"], lw=1.3)
        batch = rows.iloc[_thinned(len(rows), len(names))]
        bottom.plot(batch["tokens"], batch["batch"], ds="steps-pre", color=look["color"], lw=1.5)
    low, high = np.nanquantile(np.concatenate([line.get_ydata() for line in top.lines]), (0, 0.95))
    top.set_ylim(low - 0.04 * (high - low), high + 0.1 * (high - low))
    counted = f"{len(looks)} of {kinds} kinds, {len(top.lines)} of {len(names)} runs"
    note = counted if len(looks) < kinds else ""
    style.panel_title(top, "", note, ylabel=_noun(column))
    bottom.set(xlabel="tokens consumed", ylabel="batch (sequences)", xscale="log")
    style.batch_axis(bottom.yaxis, runs["batch"])
    style.tokens_axis(bottom.xaxis)
    entries = [style.handle(str(kind), color=look["color"], lw=1.5) for kind, look in looks.items()]
    return style.side_legend(figure, entries, "batch (lr)")


def _drawn(table: pd.DataFrame, names: dict[str, str], looks: dict) -> Iterator[tuple[dict, Any]]:
    """Return the look and the rows of each run whose kind is drawn."""
    by_run = ((names[str(run)], rows) for run, rows in table.groupby("run", sort=False))
    return ((looks[name], rows) for name, rows in by_run if name in looks)


def _told_apart(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return colour and marker by name, for an even selection that can be distinguished."""
    every = list(dict.fromkeys(names))
    return style.named_styles(every[i] for i in _spread(len(every), MOST))


def _spread(count: int, most: int) -> np.ndarray:
    """Return evenly spaced indices, at most `most`, with both ends."""
    return np.unique(np.linspace(0, count - 1, most).astype(int))


def _noun(column: str) -> str:
    return f"{'held-out' if column == 'eval_loss' else 'training'} loss (nats per token)"


def _thinned(count: int, runs: int) -> np.ndarray:
    """Return indices of rows of one of several runs: as many as a figure can show, with the
    last."""
    return _spread(count, min(count, max(MARKS // runs, 50)))


def fitted_curves(fit: CurveFit, runs: pd.DataFrame) -> Figure:
    """Loss against tokens as measured (marks) and by the law (lines), and the law's errors.

    If there are too many kinds of schedule to distinguish, an even selection is drawn. The errors
    refer to the runs drawn.

    Args:
        fit: the law; where it did not converge only the measurements are drawn.
        runs: a run table of the runs to draw, for the names of their schedules.
    """
    table = fit.residuals()
    names = _names(runs)
    known = table["run"].isin([*names])
    if not known.any():  # fitted to means over seeds, whose names are those of the schedules
        names = {str(run): str(run) for run in table["run"]}
    table = table.loc[known | ~known.any()]
    looks = _told_apart(names.values())
    figure, [[top], [bottom]] = style.new_figure(5.6, rows=2, sharex=True, height_ratios=(1.7, 1))
    drawn = fit.status != "not converged"
    for look, rows in _drawn(table, names, looks):
        at = rows["tokens"]
        loss = rows["measured"]
        predicted = rows["fitted"]
        top.plot(at, loss, ls="none", ms=3.5, mec="white", mew=0.3, **look)
        if drawn:
            top.plot(at, predicted, color=look["color"], lw=1.2)
            bottom.plot(at, 100 * np.log(predicted / loss), lw=1, ms=3.5, **look)
    bottom.axhline(0, color=style.FAINT, linewidth=0.8, zorder=1)
    note = f"{fit.clock} time variable, rms error {fit.rmse:.2%}"
    style.panel_title(top, "functional scaling law", note if drawn else "no fit: not converged")
    top.set_ylabel("loss (nats per token)")
    bottom.set(xlabel="tokens consumed", ylabel="error of the law (%)", xscale="log")
    style.tokens_axis(bottom.xaxis)
    return style.side_legend(figure, style.handles(looks, lw=1.2, ms=4), "batch (lr)")


def _names(runs: pd.DataFrame) -> dict[str, str]:
    """Return each run's label: its batch sizes, and peak LR and model if runs differ in them."""
    rates = next((name for name in ("lr", "peak_lr") if name in runs), None)
    peaks = {
        str(run): float(np.fmax.reduce(rows[rates].to_numpy(float)))
        for run, rows in (runs.groupby("run") if rates else ())
    }
    one = near_as_one(peaks.values())
    peaks = {run: one.get(peak, peak) for run, peak in peaks.items()}
    several = len({f"{peak:.3g}" for peak in peaks.values()}) > 1
    models = "model" in runs and len(set(runs["model"])) > 1
    entries = []
    for run, rows in runs.groupby("run", sort=False):
        every = rows["batch"].tolist()
        batches = [b for i, b in enumerate(every) if i == 0 or b != every[i - 1]]
        short = batches if len(batches) < 4 else [batches[0], "…", batches[-1]]
        text = "→".join(str(b) for b in short)
        known = several and np.isfinite(peaks[str(run)])
        name = f"{text} ({peaks[str(run)]:.3g})" if known else text
        name = f"{style.named(str(rows['model'].iloc[0]))}: {name}" if models else name
        entries.append((len(batches), batches, peaks.get(str(run), 0.0), str(run), name))
    return {run: name for *_, run, name in sorted(entries)}
