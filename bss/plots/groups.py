"""Fits of groups of rows: a line over batch sizes per group, or its estimate with the interval."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bss.errors import InputError
from bss.laws import GroupFits
from bss.laws.differences import RATIO, compared
from bss.laws.groups import value_text
from bss.plots import style
from bss.units import rounded_tokens

ROW = 0.24  # inches of a legend's or a group's row


def plot_groups(fits: GroupFits, ax: Axes | None = None) -> Axes:
    """Plot the groups on the given axes, or on new ones of pyplot.

    - E(S): tokens to the lowest target that all groups have, against batch size.
    - Final losses, runs of equal cost: the lowest loss of each batch size, at the largest size.
    - Other kinds: the estimate of each group that is compared first, with its interval.
    """
    ax = style.axes_or_new(ax)
    if fits.kind in ("es", "loss", "equal"):
        _draw_lines(ax, fits)
    else:
        _draw_estimates(ax, fits)
    return ax


def groups_figure(fits: GroupFits) -> Figure:
    """Return `plot_groups` as a figure without pyplot, for a file."""
    figure, [[ax]] = style.new_figure(max(4.0, 1 + ROW * len(fits)))
    plot_groups(fits, ax)
    return figure


def _draw_lines(ax: Axes, fits: GroupFits) -> None:
    """Draw what each batch size needs, a line per group."""
    names = _names(fits)
    looks = style.lined_styles(names)
    rows = fits.penalties()
    by = [*fits.by]
    tokens = fits.kind == "es"
    where, size, value = _columns(fits)
    if tokens:
        shared = rows.groupby("target_loss")[by].apply(lambda x: len(x.drop_duplicates()))
        known = shared.index[shared == shared.max()]
        rows = rows.loc[np.isclose(rows["target_loss"].to_numpy(float), min(known))]
        title = f"Tokens to loss {min(known):.4g}"
    else:
        last = rows.groupby(by, sort=False)[where].transform("max")
        rows = rows.loc[(rows[where] == last).all(axis=1)]
        title = "Lowest loss of each batch size"
    for name, key in zip(names, fits.fits, strict=True):
        here = rows.loc[(rows[by] == [*key]).all(axis=1)].sort_values(size)
        ax.plot(here[size], here[value], ms=5, lw=1.4, **looks[name])
    if tokens:
        ax.set_yscale("log")
        style.tokens_axis(ax.yaxis)
    unit = "tokens" if size == "batch_tokens" else "sequences"
    if unit == "tokens":
        ax.set_xscale("log")
        style.tokens_axis(ax.xaxis)
    else:
        style.batch_axis(ax.xaxis)
    ylabel = "tokens" if tokens else "loss (nats per token)"
    style.panel_title(ax, title, xlabel=f"batch size ({unit})", ylabel=ylabel)
    entries = [style.handle(name, lw=1.4, ms=5, **look) for name, look in looks.items()]
    style.legend_beside(ax, entries, style.named(", ".join(by)))


def _columns(fits: GroupFits) -> tuple[list[str], str, str]:
    """Return the columns of `GroupFits.penalties`: of the place, the batch size and the value."""
    if fits.kind == "es":
        return ["target_loss"], "batch", "tokens"
    if fits.kind == "loss":
        return ["params", "tokens"], "batch_tokens", "loss"
    first: Any = next(iter(fits.values()))
    return [first.column], "batch", "loss"


def _draw_estimates(ax: Axes, fits: GroupFits) -> None:
    """Draw one estimate of each group with its interval, a row per group."""
    estimates = [compared(fit) for fit in fits.values()]
    quantity = estimates[0][0].quantity
    chosen = [[one for one in of if one.quantity == quantity][-1:] for of in estimates]
    if not any(one.estimate.value for of in chosen for one in of):
        raise InputError(f"--plot: no group identifies its {quantity}; leave it out")
    for row, of in enumerate(chosen):
        for one in of:
            value = one.estimate.value
            drawn = (one.estimate.low, value, one.estimate.high)
            ends = [end for end in drawn if end is not None]
            ax.plot([min(ends), max(ends)], [row, row], color=style.INK, lw=1.4)
            if value is not None:
                ax.plot([value], [row], "o", ms=6, color=style.INK)
            place = ", ".join(_text(n, x) for n, x in one.where.items() if n not in fits.by)
            beside: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points"}
            ax.annotate(place, (max(ends), row), ha="right", fontsize=style.SMALL, **beside)
    ax.set_yticks(range(len(fits)), _names(fits))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylim(len(fits) - 0.5, -0.5)
    if estimates[0][0].unit == RATIO:
        ax.set_xscale("log")
        scaled = style.tokens_axis if quantity.startswith("tokens") else style.count_axis
        scaled(ax.xaxis)
    level = next(iter(fits.values())).level
    title = f"{quantity}, {level:.0%} intervals"
    style.panel_title(ax, title, style.named(f"by {', '.join(fits.by)}"), xlabel=quantity)


def _names(fits: GroupFits) -> list[str]:
    """Return the values of each group as texts of a figure."""
    return [
        style.named(", ".join(_value(n, x) for n, x in zip(fits.by, key, strict=True)))
        for key in fits.fits
    ]


def _text(name: str, value: Any) -> str:
    return f"{style.named(name)} {_value(name, value)}"


def _value(name: str, value: Any) -> str:
    """Return a value as text; params and tokens as counts, 1.25B."""
    if name in ("params", "tokens"):
        return rounded_tokens(value)
    return value_text(value)
