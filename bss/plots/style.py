"""The style that all figures share: sizes, colours, markers, axes with ticks for people."""

import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, YAxis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from bss.errors import printable
from bss.laws.es import LAWS
from bss.units import format_tokens

WIDTH = 8.6
INK = "#222222"
FAINT = "#9a9a9a"
GRID = "#e4e4e4"
SMALL = 7.5

SHEET = matplotlib.rc_params_from_file(
    str(Path(__file__).with_name("bss.mplstyle")), use_default_template=False
)
"""The style sheet, which people use as "bss.plots.bss"."""

# Glyphs as paths look the same on every machine; a fixed salt makes the file reproducible.
_SVG_RC: dict[Any, Any] = {"svg.fonttype": "path", "svg.hashsalt": "bss"}

LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS = "osD^vPX*<>"
# The plain surface is the faintest: of the laws here it misses most wherever it was tried.
_LAWS = (
    ("#8a8a8a", ":", "D"),
    *(("#4a7ba6", "-.", marker) for marker in "<v>"),
    ("#c2571a", "--", "s"),
    ("#10375c", "-", "^"),
    *(("#2f7d4f", (0, (5, 1, 1, 1)), marker) for marker in "oPX"),
)

Look = Mapping[str, Any]
"""How a line or a mark is drawn, as matplotlib's keywords."""

Spread = Sequence[np.ndarray]
"""x, y, low and high of the points of a line."""

_DECIMAL_TICKS = ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))


def new_figure(
    height: float, rows: int = 1, columns: int = 1, width: float = WIDTH, **subplots: Any
) -> tuple[Figure, np.ndarray]:
    """Return an empty figure in the shared style, and its axes [rows, columns]; sizes in inches."""
    with matplotlib.rc_context(SHEET):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **subplots)
    return figure, axes


def axes_or_new(ax: Axes | None, height: float = 4.0, width: float = 7.0) -> Axes:
    """Return axes, by default of a new figure of pyplot, which a notebook shows; sizes in
    inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    with matplotlib.rc_context(SHEET):
        return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def legend_beside(ax: Axes, entries: Sequence[Any], title: str = "") -> None:
    """Put a legend to the right of axes, where it covers no data."""
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "title_fontsize": 8}
    look |= {"title": title or None, "alignment": "left", "labelspacing": 0.6}
    ax.legend(handles=list(entries), loc="upper left", bbox_to_anchor=(1.01, 1.0), **look)


def panels(
    count: int, height: float, beside: float = 0.0, **subplots: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with two panels per row, and its axes; sizes in inches.

    Args:
        count: number of panels.
        height: height of a row.
        beside: width of a legend to the right of the panels.
        subplots: Further arguments of `new_figure`.
    """
    rows = -(-count // 2)
    columns = min(count, 2)
    width = beside + 3.4 * columns
    figure, axes = new_figure(height * rows, rows, columns, width, **subplots)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return figure, list(axes.flat[:count])


def batch_styles(batches: Iterable[float]) -> dict[float, dict[str, Any]]:
    """Colour and marker of each batch: darker is smaller."""
    return named_styles(sorted(set(batches)))


def named_styles(names: Iterable[Any]) -> dict[Any, dict[str, Any]]:
    """Colour and marker of each name, in their order: darker comes first."""
    order = list(dict.fromkeys(names))
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.8, max(len(order), 2)))
    looks = zip(order, colours, cycle(_MARKERS), strict=False)
    return {name: {"color": tuple(colour), "marker": mark} for name, colour, mark in looks}


def lined_styles(names: Iterable[Any], lines: Sequence[Any] = LINES) -> dict[Any, dict[str, Any]]:
    """Colour, marker and line style of each name; line styles repeat in a cycle."""
    looks = zip(named_styles(names).items(), cycle(lines), strict=False)
    return {name: look | {"linestyle": line} for (name, look), line in looks}


def law_styles(names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Colour, line style and marker of each law: registered ones keep theirs in every figure."""
    order = list(dict.fromkeys([*LAWS, *names]))
    looks = (_LAWS[order.index(name) % len(_LAWS)] for name in names)
    styles = ({"color": color, "linestyle": line, "marker": m} for color, line, m in looks)
    return dict(zip(names, styles, strict=True))


def columns(table: pd.DataFrame, *names: str) -> list[np.ndarray]:
    """Columns as floats."""
    return [table[name].to_numpy(float) for name in names]


def named(name: str) -> str:
    r"""Return a name from a file as a text of a figure: one line, in which nothing is a formula.

    Examples:
        >>> named("lr_$x"), named("_hidden")
        ('lr_\\$x', ' _hidden')
    """
    text = printable(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def handle(label: str, **look: Any) -> Line2D:
    """Return a legend's entry: a line or a mark of a look."""
    return Line2D([], [], label=label, **look)


def handles(looks: Mapping[Any, Look], form: str = "{}", **look: Any) -> list[Line2D]:
    """Return a legend's entries, one for each of `named_styles` or the like."""
    return [handle(form.format(name), **own, **look) for name, own in looks.items()]


def hollow(label: str, **look: Any) -> Line2D:
    """Return a legend's entry for what hollow marks mean."""
    return handle(label, ls="none", marker="o", mfc="white", mec=INK, **look)


def bars(ax: Axes, line: Spread, look: Look, filled: Any = True) -> None:
    """Plot a line with bars from low to high; no bar if an end is unknown; some marks hollow."""
    x, y, low, high = line
    spread = np.nan_to_num(np.array([y - low, high - y]), posinf=0, neginf=0)
    bare: dict[str, Any] = {"linestyle": "-"} | dict(look) | {"marker": ""}
    ax.errorbar(x, y, yerr=np.maximum(spread, 0), capsize=2.5, lw=1.4, elinewidth=1, **bare)
    _marks(ax, x, y, filled, look)


def bounds(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any) -> None:
    """Plot one-sided bounds: a triangle down at an upper bound, else one up at a lower bound."""
    below = np.isfinite(high)
    above = ~below & np.isfinite(low)
    mark: dict[str, Any] = {"linestyle": "none", "ms": 6, "color": INK} | look
    ax.plot(x[below], high[below], marker="v", **mark)
    ax.plot(x[above], low[above], marker="^", **mark)


def band(ax: Axes, line: Spread, look: Look) -> None:
    """Plot a line with marks in a band from low to high; no band if an end is unknown."""
    x, y, low, high = np.array(line)[:, np.argsort(line[0])]
    ax.fill_between(x, low, high, color=look["color"], alpha=0.16, lw=0)
    bare: dict[str, Any] = {"linestyle": "-", "lw": 1.4} | dict(look) | {"marker": ""}
    ax.plot(x, y, **bare)
    _marks(ax, x, y, True, look)


def _marks(ax: Axes, x: np.ndarray, y: np.ndarray, filled: Any, look: Look) -> None:
    """Marks without a line, some of them hollow."""
    full = np.broadcast_to(np.asarray(filled, bool), np.shape(x))
    mark: dict[str, Any] = {"ms": 5.5, "zorder": 4, **look, "linestyle": "none"}
    ax.plot(x[full], y[full], **mark)
    ax.plot(x[~full], y[~full], mfc="white", **mark)


def side_legend(figure: Figure, handles: Sequence[Any], title: str | None = None) -> Figure:
    """Return the figure with a legend to the right of the axes, where it covers no data."""
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "title_fontsize": 8}
    look |= {"title": title, "alignment": "left", "labelspacing": 0.6}
    figure.legend(handles=list(handles), loc="outside right upper", **look)
    return figure


def panel_title(ax: Axes, title: str, note: str = "", pad: float = 6, **labels: Any) -> None:
    """A title above the left end of a panel, a remark above the right one, labels of the axes."""
    ax.set(**labels)
    ax.set_title(title, loc="left", fontsize=9.5, fontweight="bold", pad=pad)
    if note:
        ax.set_title(note, loc="right", fontsize=SMALL, color="#555555", style="italic", pad=pad)


def falling(losses: Collection[float]) -> tuple[float, float]:
    """Limits of an axis from above the highest loss to below the lowest."""
    margin = 0.08 * (max(losses) - min(losses)) or 0.1
    return max(losses) + margin, min(losses) - margin


def tokens_axis(axis: Axis, most: int = 6) -> None:
    """Ticks like 200K and 1M, on a linear or logarithmic axis whose limits are set."""
    _ticks(axis, partial(_decimal_ticks, most=most), lambda at: format_tokens(max(round(at), 0)))


def count_axis(axis: Axis, most: int = 6) -> None:
    """Plain decimal ticks, on a linear or logarithmic axis whose limits are set."""
    _ticks(axis, partial(_decimal_ticks, most=most))


def batch_axis(axis: XAxis | YAxis, batches: Iterable[float] = (), most: int = 9) -> None:
    """Make an axis logarithmic, with ticks at a few batches, else at powers of 2 in its limits."""
    few = sorted(set(batches))
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=2)
    _ticks(axis, lambda low, high: few if 0 < len(few) < 7 else _doubling_ticks(low, high, most))


def svg(figure: Figure, name: str = "") -> str:
    """Return the figure as an SVG element to put into a page, where no other has its name.

    Only ids that it refers to are kept, prefixed by the name.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_SVG_RC):
        # `savefig` would draw a second time, only for the layout.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    own = re.sub(r"\W+", "-", name)
    text = re.sub(r' id="(.*?)"', lambda at: f' id="{own}{at[1]}"' * (at[1] in used), text)
    text = re.sub(r'(href="|url\()#', rf"\g<0>{own}", text)
    return text[text.index("<svg") :].strip()


def _ticks(
    axis: Axis,
    choose: Callable[[float, float], list[float]],
    text: Callable[[float], str] = "{:,.6g}".format,
) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    if axis.get_scale() == "log":
        low, high = sorted(axis.get_view_interval())
        ticks = choose(low, high)
        axis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(4))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))


def _decimal_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks: list[float] = []
    for steps in _DECIMAL_TICKS:
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            return ticks
    return ticks[:: -(-len(ticks) // most)]


def _doubling_ticks(low: float, high: float, most: int = 9) -> list[float]:
    powers = range(int(np.ceil(np.log2(low) - 1e-9)), int(np.floor(np.log2(high) + 1e-9)) + 1)
    ticks = [2.0**power for power in powers]
    return ticks[:: max(1, -(-len(ticks) // most))]
