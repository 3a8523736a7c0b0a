"""The laws E(S): the points they are fitted to, the laws themselves, the batches they call for.

S is in steps, E in tokens, B in sequences. Any law of `bss.laws.es` is drawn.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.es.values import TargetFit
from bss.plots import style

CURVE_POINTS = 400
WEIGHTS = (2.4, 1.5, 1.0)  # of lines: the first law is drawn boldest, the last thinnest


def tokens_to_target(points: pd.DataFrame, fits: Mapping[str, EsFit]) -> Figure:
    """Tokens E to each target loss against the batch B, one panel per target.

    A run that did not reach a target is an arrow at the tokens it consumed: E is above. A diamond
    is a law's B_opt where the design identifies it.

    Args:
        points: table of points.
        fits: fitted laws by name, the boldest first.
    """
    figure, panels = _panels(points, fits, "batch", 1.5)
    batches = np.geomspace(points["batch"].min() / 1.4, points["batch"].max() * 1.4, CURVE_POINTS)
    looks = _weighted(fits)
    for ax, target, fitted in panels:
        for law, at_target in fitted.items():
            tokens = fits[law].tokens(batches, target)
            ax.plot(batches, tokens, zorder=2, **looks[law] | {"marker": ""})
            if (best := _optimum(at_target)) is not None:
                ax.plot(best, at_target.E_min or np.nan, **_diamond(looks[law], 7), zorder=5)
        style.batch_axis(ax.xaxis, most=9 if batches[-1] < 1000 else 5)
    figure.supxlabel("batch B (sequences)", fontsize=9)
    return style.side_legend(figure, _handles(points, fits, optimum=True))


def es_panels(points: pd.DataFrame, fits: Mapping[str, EsFit]) -> Figure:
    """Tokens E against steps S to each target loss, with the laws, one panel per target.

    The steps between the stages of the three-stage law are marked. Faint diagonals are fixed batch
    sizes, E = B·S.

    Args:
        points: table of points.
        fits: fitted laws by name, the boldest first.
    """
    marked = any("S_1" in at.parameters for fit in fits.values() for at in fit.fits)
    figure, panels = _panels(points, fits, "steps", 1.7, pad=38 if marked else 6)
    measured = sorted(set(points["batch"]))
    seq_len = int(points["seq_len"].iloc[0])
    batches = np.geomspace(measured[0] / 8, measured[-1] * 8, 2 * CURVE_POINTS)
    looks = _weighted(fits)
    for ax, target, fitted in panels:
        ends = np.array(ax.get_xlim())
        for batch in measured:
            ax.plot(ends, batch * seq_len * ends, color="#cfcfcf", linewidth=0.6, zorder=1)
        for law in fitted:
            tokens = np.array(fits[law].tokens(batches, target))
            steps = tokens / (batches * seq_len)
            ax.plot(steps, tokens, zorder=2, **looks[law] | {"marker": ""})
            marks = fits[law].parameters(target)._asdict()
            if "S_1" in marks:
                _mark_stages(ax, marks, looks[law]["color"])
        style.tokens_axis(ax.xaxis, most=4)
    figure.supxlabel("optimizer steps to the target S", fontsize=9)
    fixed = style.handle("constant batch, E = B·S", color="#cfcfcf", lw=0.8)
    return style.side_legend(figure, [*_handles(points, fits, optimum=False), fixed])


def batch_against_loss(fits: Mapping[str, EsFit]) -> Figure:
    """B_opt and B_min of each law against the target loss, with their intervals.

    Only what a design identifies is a point; a bound on one side is a triangle, and what is not
    known at all is counted above the panel. A law that has neither is not shown. B_min has a panel
    if some law identifies it.

    Args:
        fits: fitted laws by name.
    """
    shown = {law: fit for law, fit in fits.items() if {"B_opt", "B_min"} & set(fit.law.batches)}
    lowest = [at.shown("B_min") for fit in shown.values() for at in fit.fits]
    names = ("B_opt", "B_min") if any(at and at.value for at in lowest) else ("B_opt",)
    figure, axes = style.new_figure(3.3, columns=len(names), sharex=True)
    looks = style.law_styles(shown)
    for ax, name in zip(axes[0], names, strict=True):
        _batch_panel(ax, shown, name)
    losses = [at_target.target_loss for fit in shown.values() for at_target in fit.fits]
    if losses:
        axes[0, 0].set_xlim(style.falling(losses))
    bounds = [
        style.handle(text, color=style.INK, marker=marker, ls="none", ms=6)
        for text, marker in (("at most", "v"), ("at least", "^"))
    ]
    optima = [at.shown("B_opt") for fit in shown.values() for at in fit.fits]
    measured = [best for best in optima if best and _is_measured(best)]
    if any(best.value is not None for best in measured):
        bounds.append(style.hollow("measured minimum", ms=5))
    if any(best.value is None for best in measured):
        bounds.append(style.handle("black: of a measured minimum", ls="none"))
    interval = style.handle("bars: 90% of the fit", ls="none")
    return style.side_legend(figure, [*style.handles(looks, ms=5), *bounds, interval])


def _is_measured(best: Any) -> bool:
    """Return True if B_opt is the measured minimum and not the law's."""
    return getattr(best, "method", "") == "measured"


def _batch_panel(ax: Axes, shown: Mapping[str, EsFit], name: str) -> None:
    """One kind of batch of every law that has it."""
    notes = []
    ends = []
    for i, (law, look) in enumerate(style.law_styles(shown).items()):
        fits = shown[law].fits
        if not any(name in at.batches for at in fits):
            continue
        rows = [(at.target_loss, at.shown(name)) for at in fits]
        known = [(x, e.value, e.low, e.high) for x, e in rows if e is not None]
        x, value, low, high = np.array(known, float).reshape(-1, 4).T
        losses = [at.target_loss for at in fits]
        x = x + 0.025 * (i - (len(shown) - 1) / 2) * (max(losses) - min(losses) or 1.0)
        found = np.isfinite(value)
        of_law = np.array([not _is_measured(e) for _, e in rows if e is not None], bool)
        style.bars(ax, (x[found], value[found], low[found], high[found]), look, of_law[found])
        for here, color in ((~found & of_law, look["color"]), (~found & ~of_law, style.INK)):
            style.bounds(ax, x[here], low[here], high[here], color=color)
        ends += [*np.where(found, value, np.fmax(low, np.nan_to_num(high)))]
        if missing := len(fits) - int((found | np.isfinite(low) | np.isfinite(high)).sum()):
            notes.append(f"{law}: none at {missing} of {len(fits)}")
    symbol = f"${name[0]}_{{{name[2:]}}}$"
    style.panel_title(ax, symbol, "\n".join(notes))
    label = "target loss (nats per token), falling →"
    ax.set(xlabel=label, ylabel=f"{symbol} (sequences)", ylim=(1, 16))
    # From below the lowest to above the highest value or bound; long intervals may leave.
    if numbers := [end for end in ends if end > 0]:
        ax.set_ylim(min(numbers) / 3, max(numbers) * 3)
    else:
        ax.text(0.5, 0.5, "not resolved", transform=ax.transAxes, ha="center", color=style.FAINT)
    style.batch_axis(ax.yaxis)


def _panels(
    points: pd.DataFrame, fits: Mapping[str, EsFit], x: str, margin: float, pad: float = 6
) -> tuple[Figure, list[tuple[Axes, float, dict[str, TargetFit]]]]:
    """Return the points of each target that some run reached, a panel each, highest loss first.

    Returns:
        The figure; axes, target and the fits that converged there, for each panel.
    """
    targets = sorted(set(points.loc[points["reached"], "target_loss"]), reverse=True)
    if not targets:
        raise InputError("points: no target was reached; choose targets that runs reach")
    columns = min(len(targets), 3)
    rows = -(-len(targets) // columns)
    figure, axes = style.new_figure(0.6 + 2.5 * rows, rows, columns)
    figure.supylabel("tokens to the target E", fontsize=9)
    for ax in axes.flat[len(targets) :]:
        ax.set_axis_off()
    looks = style.batch_styles(points["batch"])
    panels = []
    for target, ax in zip(targets, axes.flat, strict=False):
        here = points.loc[points["target_loss"] == target]
        draw_points(ax, here, x, looks)
        limits = _limits(here[x], margin), _limits(here["tokens_to_target"], 1.6)
        ax.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
        style.tokens_axis(ax.yaxis)
        fitted = {
            law: at_target
            for law, fit in fits.items()
            for at_target in fit.fits
            if at_target.status == "converged" and np.isclose(at_target.target_loss, target)
        }
        style.panel_title(ax, f"loss {target:g}", pad=pad)
        panels.append((ax, target, fitted))
    return figure, panels


def draw_points(ax: Axes, rows: pd.DataFrame, x: str, looks: dict) -> None:
    """The points of one target; those that did not reach it hollow, with an arrow up."""
    for (batch, reached), group in rows.groupby(["batch", "reached"]):  # type: ignore[misc]
        look = looks[float(batch)]
        where = group[x], group["tokens_to_target"]
        if reached:
            ax.plot(*where, linestyle="none", ms=5.5, mec="white", mew=0.5, zorder=4, **look)
        else:
            shift = {"xytext": (0, 15), "textcoords": "offset points"}
            arrow = {"arrowstyle": "<|-", "color": look["color"], "lw": 1.2}
            for at in zip(*where, strict=True):
                ax.annotate("", at, **shift, arrowprops=arrow)
            ax.plot(*where, linestyle="none", ms=5, mfc="white", zorder=4, **look)


def _limits(values: pd.Series, margin: float) -> tuple[float, float]:
    return values.min() / margin, values.max() * margin


def _mark_stages(ax: Axes, marks: Mapping[str, float], colour: str) -> None:
    """Mark the steps between a law's stages."""
    low, high = ax.get_xlim()
    text = {"ha": "center", "va": "bottom", "size": style.SMALL, "color": colour}
    above = {"xycoords": ax.get_xaxis_transform(), "textcoords": "offset points"}
    shown = [(x, name[2:]) for name, x in marks.items() if name[:2] == "S_" and low < x < high]
    for i, (x, index) in enumerate(sorted(shown)):
        ax.axvline(x, color=colour, linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
        y = 2 + 1.5 * style.SMALL * (i % 3)  # points: neighbours stand on different lines
        ax.annotate(f"$S_{{{index}}}$", (x, 1), (0, y), **above, **text)


def _handles(points: pd.DataFrame, fits: Mapping[str, EsFit], *, optimum: bool) -> list[Line2D]:
    entries = style.handles(style.batch_styles(points["batch"]), "batch {:g}", ls="none", ms=5.5)
    if not points["reached"].to_numpy(bool).all():
        arrow = {"ls": "none", "color": style.INK, "marker": r"$\uparrow$", "ms": 8}
        entries.append(style.handle("not reached", **arrow))
    looks = _weighted(fits)
    for law, fit in fits.items():
        converged = sum(at_target.status == "converged" for at_target in fit.fits)
        if converged < len(fit.fits):
            missing = f"no fit of {law} at\n{len(fit.fits) - converged} of {len(fit.fits)} targets"
            entries.append(style.handle(missing, ls="none"))
        if not converged:
            continue
        entries.append(style.handle(law, **looks[law] | {"marker": ""}))
        if optimum and any(_optimum(at_target) for at_target in fit.fits):
            entries.append(style.handle(f"{law} $B_{{opt}}$", **_diamond(looks[law], 6)))
    return entries


def _weighted(fits: Mapping[str, EsFit]) -> dict[str, dict[str, Any]]:
    """Return the looks of laws, with lines that grow thinner in their order."""
    looks = style.law_styles(fits)
    rank = {law: min(i, len(WEIGHTS) - 1) for i, law in enumerate(fits)}
    return {law: look | {"lw": WEIGHTS[rank[law]]} for law, look in looks.items()}


def _diamond(look: dict[str, Any], size: float) -> dict[str, Any]:
    """Return the hollow mark of a law's B_opt."""
    face = {"mfc": "white", "mec": look["color"], "mew": 1.5}
    return {"marker": look["marker"], "ms": size, "linestyle": "none", **face}


def _optimum(at_target: TargetFit) -> float | None:
    """Return B_opt where the design identifies it."""
    best = at_target.batches.get("B_opt")
    return best.value if best is not None and at_target.status == "converged" else None
