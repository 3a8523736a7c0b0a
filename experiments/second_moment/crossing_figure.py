"""Curves of constant batch sizes that cross, with their seeds, and their E(S)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bss.laws import EsFit
from bss.plots import style
from bss.plots.laws import draw_points
from bss.points.batches import BatchCurve, batch_curves, losses_on_grid

SHOWN = 3.0  # the losses drawn lie below this
LAW_POINTS = 200
MEETING = {"marker": "x", "color": style.INK, "ls": "none", "ms": 6, "mew": 1.4}


def crossing_figure(
    runs: pd.DataFrame,
    pairs: Sequence[tuple[float, float]],
    points: pd.DataFrame,
    fits: Mapping[str, EsFit],
    targets: Sequence[float],
) -> Figure:
    """Draw held-out losses over tokens, their excess over the best batch, and E(S) at targets.

    At the left the monotone fits to the losses (`bss.points.curve`): the mean over seeds in the
    band from the lowest seed to the highest, and below it the excess, in a band of 2 standard
    errors over paired seeds. Crosses are where the curves of a pair meet, with 2 standard errors.
    At the right tokens against steps to two targets, a mark a seed, with the laws.

    Args:
        runs: of constant batches at one rate, each with the same seeds.
        pairs: batches whose curves cross, small and large.
        points: table of points of the runs.
        fits: fitted laws by name.
        targets: two losses in nats, as in the points.
    """
    curves = batch_curves(runs.sort_values("seed", kind="stable"), "eval_loss")
    bands, met = seed_bands(curves), meetings(curves, pairs)
    looks = style.batch_styles(curve.batch for curve in curves)
    figure, axes = style.new_figure(6.0, 2, 2, 10.4, width_ratios=(1.45, 1), height_ratios=(1.2, 1))
    (top, first), (bottom, second) = axes
    bottom.sharex(top)
    _losses(top, bands, met, looks, targets)
    _excess(bottom, bands, met, looks)
    for ax, target in zip((first, second), targets, strict=True):
        _target(ax, points, fits, target, looks)
    second.set_xlabel("steps to the target S")
    laws = {law: look | {"marker": ""} for law, look in style.law_styles(fits).items()}
    entries: list[Any] = style.handles(looks, "batch {:g}", lw=1.5, ms=5)
    entries += style.handles(laws, lw=1.6)
    entries.append(style.handle("two curves meet", **MEETING))
    entries.append(
        Patch(
            color=style.INK, alpha=0.16, lw=0, label="seeds: all above,\n± 2 standard errors\nbelow"
        )
    )
    if not points["reached"].to_numpy(bool).all():
        arrow = {"ls": "none", "color": style.INK, "marker": r"$\uparrow$", "ms": 8}
        entries.append(style.handle("not reached", **arrow))
    return style.side_legend(figure, entries)


def _losses(
    ax: Axes, bands: pd.DataFrame, met: pd.DataFrame, looks: dict, targets: Sequence[float]
) -> None:
    for target in targets:
        ax.axhline(target, color=style.FAINT, lw=0.8, zorder=1)
    _lines(ax, bands, looks, ["loss", "low", "high"])
    ax.errorbar(met["tokens"], met["loss"], xerr=_spread(met), zorder=5, elinewidth=1, **MEETING)
    low, high = bands["low"].min(), min(bands["high"].max(), SHOWN)
    ax.set(xscale="log", ylim=(low - 0.03, high), ylabel="held-out loss (nats per token)")
    style.panel_title(ax, "loss of constant batches")


def _excess(ax: Axes, bands: pd.DataFrame, met: pd.DataFrame, looks: dict) -> None:
    ends = bands.assign(low=bands["above"] - bands["error"], high=bands["above"] + bands["error"])
    _lines(ax, ends, looks, ["above", "low", "high"])
    # The best batches change places in a narrow band; those far from it may leave the panel.
    last = ends.groupby("batch")["above"].last()
    top = max(1.6 * float(np.nanquantile(last, 0.7)), 1e-3)
    ax.set(ylim=(-0.12 * top, top), xlabel="tokens consumed")
    ax.set_ylabel("excess over the best\nbatch (nats per token)")
    style.tokens_axis(ax.xaxis)
    if len(met):
        at = np.full(len(met), -0.06 * top)
        ax.errorbar(met["tokens"], at, xerr=_spread(met), elinewidth=1, **MEETING)


def _lines(ax: Axes, table: pd.DataFrame, looks: dict, names: list[str]) -> None:
    for i, (batch, look) in enumerate(looks.items()):
        rows = table.loc[table["batch"] == batch]
        tokens, value, low, high = style.columns(rows, "tokens", *names)
        ax.fill_between(tokens, low, high, color=look["color"], alpha=0.16, lw=0)
        every = (4 * i, 5 * len(looks))
        ax.plot(tokens, value, lw=1.3, ms=4, markevery=every, **look)


def _target(
    ax: Axes, points: pd.DataFrame, fits: Mapping[str, EsFit], target: float, looks: dict
) -> None:
    here = points.loc[np.isclose(points["target_loss"], target)]
    draw_points(ax, here, "steps", looks)
    batches = np.geomspace(min(looks) / 1.4, max(looks) * 1.4, LAW_POINTS)
    missing = []
    for law, fit in fits.items():
        statuses = [f.status for f in fit.fits if np.isclose(f.target_loss, target)]
        if statuses != ["converged"]:
            missing.append(law)
            continue
        tokens = fit.tokens(batches, target)
        steps = tokens / (batches * int(here["seq_len"].iloc[0]))
        look: dict[str, Any] = style.law_styles(fits)[law] | {"marker": ""}
        ax.plot(steps, tokens, lw=1.6, zorder=3, **look)
    ax.set(xscale="log", yscale="log", ylabel="tokens to the target E")
    for axis, column in ((ax.set_xlim, "steps"), (ax.set_ylim, "tokens_to_target")):
        axis(here[column].min() / 1.5, here[column].max() * 1.5)
    style.tokens_axis(ax.yaxis)
    style.count_axis(ax.xaxis, most=4)
    style.panel_title(ax, f"E(S), loss {target:g}", f"no fit: {', '.join(missing)}" * bool(missing))


def _spread(met: pd.DataFrame) -> np.ndarray:
    """Return lengths of the horizontal bars, [2, N]."""
    return np.array([met["tokens"] - met["low"], met["high"] - met["tokens"]])


def seed_bands(curves: Sequence[BatchCurve]) -> pd.DataFrame:
    """Return the curves of each batch size over its seeds, and their excess over the best.

    Args:
        curves: one per batch and seed, every batch with the same seeds in the same order.

    Returns:
        Columns batch, tokens (as of `excess`), loss (mean), low and high (lowest and highest
        seed), above (loss minus that of the batch with the lowest mean there) and error, 2 standard
        errors of it over paired seeds, NaN with one seed.
    """
    x, losses = losses_on_grid(curves)
    stacked = np.array([*losses.values()])  # [batch, seed, T]
    means = stacked.mean(axis=1)
    best = np.nanargmin(means, axis=0)
    apart = stacked - stacked[best, :, np.arange(len(x))].T
    seeds = stacked.shape[1]
    errors = 2 * apart.std(axis=1, ddof=1) / np.sqrt(seeds) if seeds > 1 else 0 * means + np.nan
    ends = stacked.min(axis=1), stacked.max(axis=1)
    tables = [
        pd.DataFrame({"batch": batch, "tokens": np.exp(x), "loss": means[i], "low": ends[0][i],
                      "high": ends[1][i], "above": apart[i].mean(axis=0), "error": errors[i]})
        for i, batch in enumerate(losses)
    ]  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def meetings(curves: Sequence[BatchCurve], pairs: Sequence[tuple[float, float]]) -> pd.DataFrame:
    """Return where the curve of a smaller batch falls behind the larger one's for good.

    Args:
        curves: one a batch and seed.
        pairs: small and large.

    Returns:
        Columns small, large, tokens with low and high (2 standard errors of their logarithm over
        seeds), loss of the small batch there; of the pairs that meet so in every seed, two at
        least.
    """
    x, losses = losses_on_grid(curves)
    rows = []
    for small, large in pairs:
        ahead = losses[small] <= losses[large]
        if len(ahead) < 2 or ahead[:, -1].any() or not ahead.any(axis=1).all():
            continue
        last = ahead.shape[1] - 1 - np.argmax(ahead[:, ::-1], axis=1)
        at, error = x[last].mean(), 2 * x[last].std(ddof=1) / np.sqrt(len(last))
        loss = float(np.interp(at, x, losses[small].mean(axis=0)))
        rows.append((small, large, *np.exp([at, at - error, at + error]), loss))
    return pd.DataFrame(rows, columns=["small", "large", "tokens", "low", "high", "loss"])
