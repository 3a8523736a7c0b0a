"""Points of steps and tokens to a target loss, and the laws E(S) fitted to them.

S is in steps, E in tokens, B in sequences. Any law of `bss.laws.es` is drawn.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.es.values import TargetFit
from bss.laws.es.values import tokens_to_target as law_tokens
from bss.plots import style

CURVE_POINTS = 400
STAGES = ("#f3f3f3", "#e2e2e2", "#f3f3f3")


def tokens_to_target(points: pd.DataFrame, fits: Mapping[str, EsFit]) -> Figure:
    """Tokens E to each target loss against the batch B, one panel per target.

    A run that did not reach a target is an arrow at the tokens it consumed: E is above. A diamond
    is a law's B_opt where the design identifies it.

    Args:
        points: table of points.
        fits: fitted laws by name.
    """
    figure, panels = _panels(points)
    styles = style.batch_styles(points["batch"].tolist())
    batches = np.geomspace(min(styles) / 1.4, max(styles) * 1.4, CURVE_POINTS)
    looks = style.law_styles(fits)
    for target, ax in panels:
        rows = points.loc[points["target_loss"] == target]
        _draw_points(ax, rows, "batch", styles)
        limits = _limits(rows, "batch", 1.5), _limits(rows, "tokens_to_target", 1.6)
        for law, fit in fits.items():
            found = _converged(fit, target)
            if found is None:
                continue
            tokens = _law_tokens(fit, batches, target)
            ax.plot(batches, tokens, lw=1.6, zorder=2, **_line(looks[law]))
            if _has_optimum(found):
                at = np.array([found.batches["B_opt"].value, found.E_min], float)
                ax.plot(at[:1], at[1:], **_diamond(looks[law], 7), zorder=5)
        _finish(ax, target, fits, limits)
        style.batch_axis(ax.xaxis)
        style.tokens_axis(ax.yaxis)
    figure.supxlabel("batch B (sequences)", fontsize=9)
    figure.supylabel("tokens to the target E", fontsize=9)
    return style.side_legend(figure, _handles(points, fits, styles, optimum=True))


def es_panels(points: pd.DataFrame, fits: Mapping[str, EsFit]) -> Figure:
    """Tokens E against steps S to each target loss, with the laws, one panel per target.

    The stages of the law that has the most are marked, and its transition is shaded where it has
    one. Faint diagonals are constant batches, E = B·S.

    Args:
        points: table of points.
        fits: fitted laws by name.
    """
    figure, panels = _panels(points)
    styles = style.batch_styles(points["batch"].tolist())
    seq_len = int(points["seq_len"].iloc[0])
    batches = np.geomspace(min(styles) / 8, max(styles) * 8, 2 * CURVE_POINTS)
    looks, shaded = style.law_styles(fits), []
    for target, ax in panels:
        rows = points.loc[points["target_loss"] == target]
        limits = _limits(rows, "steps", 1.7), _limits(rows, "tokens_to_target", 1.6)
        for batch in styles:
            line = np.array(limits[0])
            ax.plot(line, batch * seq_len * line, color="#cfcfcf", linewidth=0.6, zorder=1)
        _draw_points(ax, rows, "steps", styles)
        for law, fit in fits.items():
            if _converged(fit, target) is not None:
                tokens = _law_tokens(fit, batches, target)
                steps = tokens / (batches * seq_len)
                ax.plot(steps, tokens, lw=1.6, zorder=2, **_line(looks[law]))
        shaded.append(_mark_stages(ax, fits, target, limits[0]))
        _finish(ax, target, fits, limits, pad=20)
        style.count_axis(ax.xaxis, most=4)
        style.tokens_axis(ax.yaxis)
    figure.supxlabel("optimizer steps to the target S", fontsize=9)
    figure.supylabel("tokens to the target E", fontsize=9)
    entries: list[Any] = _handles(points, fits, styles, optimum=False)
    entries.append(style.handle("constant batch, E = B·S", color="#cfcfcf", lw=0.8))
    if any(shaded):
        entries.append(Patch(color=STAGES[1], label="transition stage"))
    return style.side_legend(figure, entries)


def _panels(points: pd.DataFrame) -> tuple[Figure, Iterator[tuple[float, Axes]]]:
    """A figure with a panel for each target that some run reached, highest loss first."""
    targets = sorted(set(points.loc[points["reached"], "target_loss"]), reverse=True)
    if not targets:
        raise InputError("points: no target was reached; choose targets that runs reach")
    columns = min(len(targets), 3)
    rows = -(-len(targets) // columns)
    figure, axes = style.new_figure(0.6 + 2.5 * rows, rows, columns)
    for ax in axes.flat[len(targets) :]:
        ax.set_axis_off()
    return figure, zip(targets, axes.flat, strict=False)


def _draw_points(ax: Axes, rows: pd.DataFrame, x: str, styles: dict) -> None:
    for (batch, reached), group in rows.groupby(["batch", "reached"]):  # type: ignore[misc]
        look = styles[float(batch)]
        where = group[x], group["tokens_to_target"]
        if reached:
            ax.plot(*where, linestyle="none", ms=5.5, mec="white", mew=0.5, zorder=4, **look)
        else:
            shift = {"xytext": (0, 15), "textcoords": "offset points"}
            arrow = {"arrowstyle": "<|-", "color": look["color"], "lw": 1.2}
            for at in zip(*where, strict=True):
                ax.annotate("", at, **shift, arrowprops=arrow)
            ax.plot(*where, linestyle="none", ms=5, mfc="white", zorder=4, **look)


def _limits(rows: pd.DataFrame, column: str, margin: float) -> tuple[float, float]:
    values = rows[column].to_numpy(float)
    return float(values.min()) / margin, float(values.max()) * margin


def _converged(fit: EsFit, target: float) -> TargetFit | None:
    """The fit of a target, where there is one that converged."""
    for found in fit.fits:
        if np.isclose(found.target_loss, target) and found.status == "converged":
            return found
    return None


def _law_tokens(fit: EsFit, batches: np.ndarray, target: float) -> np.ndarray:
    """E in tokens at each batch; NaN where the law says that it is never reached."""
    tokens = law_tokens(fit, batches.tolist(), target)
    return np.where(np.isfinite(tokens), tokens, np.nan)


def _finish(
    ax: Axes, target: float, fits: Mapping[str, EsFit], limits: tuple, pad: float = 6
) -> None:
    ax.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
    missing = [law for law, fit in fits.items() if _converged(fit, target) is None]
    note = f"no fit: {', '.join(missing)}" if missing else ""
    style.panel_title(ax, f"loss {target:g}", note, pad)


def _mark_stages(
    ax: Axes, fits: Mapping[str, EsFit], target: float, limits: tuple[float, float]
) -> bool:
    """Mark the steps of the law with the most stages; returns whether it has a transition."""
    stages = {
        name: fit.law.stages(fit.parameters(target), target)
        for name, fit in fits.items()
        if _converged(fit, target) is not None
    }
    law = max(reversed(stages), key=lambda name: len(stages[name]), default=None)
    if law is None:
        return False
    marks, colour = stages[law], style.law_styles(fits)[law]["color"]
    shaded = {"S_1", "S_2"} <= set(marks)
    if shaded:
        edges = (limits[0], marks["S_1"], marks["S_2"], limits[1])
        for tint, low, high in zip(STAGES, edges[:-1], edges[1:], strict=True):
            ax.axvspan(low, high, color=tint, zorder=0, linewidth=0)
    before, raised = 0.0, False
    for name, value in sorted(marks.items(), key=lambda mark: mark[1]):
        if not limits[0] < value < limits[1]:
            continue
        ax.axvline(value, color=colour, linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
        near = before > 0 and np.log(value / before) < 0.13 * np.log(limits[1] / limits[0])
        raised = near and not raised
        ax.annotate(
            f"${name[0]}_{{{name[2:]}}}$", (value, 1), xycoords=("data", "axes fraction"),
            xytext=(0, 8 if raised else 1), textcoords="offset points", ha="center", va="bottom",
            fontsize=style.SMALL, color=colour,
        )  # fmt: skip
        before = value
    return shaded


def _handles(
    points: pd.DataFrame, fits: Mapping[str, EsFit], styles: dict, *, optimum: bool
) -> list[Line2D]:
    entries = style.handles(styles, "batch {:g}", ls="none", ms=5.5)
    if not points["reached"].to_numpy(bool).all():
        entries.append(
            style.handle("not reached", ls="none", color=style.INK, marker=r"$\uparrow$", ms=8)
        )
    looks = style.law_styles(fits)
    for law, fit in fits.items():
        if not any(found.status == "converged" for found in fit.fits):
            continue
        entries.append(style.handle(law, **_line(looks[law]), lw=1.6))
        if optimum and any(_has_optimum(found) for found in fit.fits):
            entries.append(style.handle(f"{law} $B_{{opt}}$", **_diamond(looks[law], 6)))
    return entries


def _line(look: dict[str, Any]) -> dict[str, Any]:
    return look | {"marker": ""}


def _diamond(look: dict[str, Any], size: float) -> dict[str, Any]:
    """The hollow mark of a law's B_opt."""
    face = {"mfc": "white", "mec": look["color"], "mew": 1.5}
    return {"marker": look["marker"], "ms": size, "linestyle": "none", **face}


def _has_optimum(found: TargetFit) -> bool:
    estimate = found.batches.get("B_opt")
    return found.status == "converged" and estimate is not None and estimate.value is not None
