"""The figures of what decides the best batch, from the tables of the parts.

    python -m experiments.second_moment.figures results/second_moment

writes them as PNG beside the tables, and E(S) of the part long as points.csv, fits.json and
left_out.csv.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bss.plots import style
from bss.points.crossings import crossing_pairs, crossings
from bss.stats import LR_PHASES, half_interval
from bss.tables import write_table
from experiments.es_wsd_archive.measure import Laws
from experiments.late_switch.figures import clocks_figure, lined_styles
from experiments.second_moment import tables
from experiments.second_moment.crossing_figure import crossing_figure
from experiments.second_moment.losses import Cell, Part, endings_of, read_part
from experiments.tables import folder_asked

CURVES = {LR_PHASES[ending].short: column for ending, column in tables.LOSSES.items()}
SMALLEST, REFERENCE = 1, "2"
MOST_ABOVE = 45.0  # 1e-3 nats above the best; batches beyond are not in question
_GREY = {"color": style.FAINT, "lw": 1.0}


def best_batch_figure(losses: Mapping[Cell, pd.DataFrame], seq_len: int) -> Figure:
    """Loss above each line's best batch, a panel for each ending.

    Bars are 95% intervals, before any correction, of the mean difference to that batch, paired by
    seed; lines that share a batch stand side by side. The best batch, without a bar, is a larger
    mark, hollow if it is the smallest or the largest. Batches far above the best leave the panel.

    Args:
        losses: [batch, seed] in nats per token, by name of the line and ending.
        seq_len: tokens of a sequence.
    """
    endings = endings_of(losses)
    names = list(dict.fromkeys(name for name, _ in losses))
    looks = lined_styles(names, ("-", "--", ":", "-."))
    width = 2.4 * max(len(endings), 2) + 2
    figure, axes = style.new_figure(2.9, 1, max(len(endings), 1), width, sharey=True)
    near: set[float] = set()
    for ax, ending in zip(axes[0], endings, strict=False):
        for (name, own), table in losses.items():
            if own == ending:
                tokens, above, half = _above_best(table.sort_index(), seq_len)
                near |= {*tokens[1e3 * above < MOST_ABOVE]}
                tokens = tokens * 1.1 ** (names.index(name) - (len(names) - 1) / 2)
                _thousandth_bars(ax, tokens, above, half, looks[name])
                best = int(np.argmin(above))
                inside = 0 < best < len(above) - 1
                mark = {**looks[name], "linestyle": "none", **({} if inside else {"mfc": "white"})}
                ax.plot(tokens[best], 0, ms=9, zorder=5, **mark)
        style.batch_axis(ax.xaxis, near)
        ax.set_xlim(min(near) / 1.5, max(near) * 1.5)
        style.panel_title(ax, LR_PHASES[ending].short, xlabel="batch (tokens)")
    axes[0, 0].set_ylim(-0.1 * MOST_ABOVE, MOST_ABOVE)
    axes[0, 0].set_ylabel("test loss less that of the line's\nbest batch (1e-3 nats per token)")
    edge = style.hollow("best at the smallest or\nlargest: a bound", ms=9)
    best = style.handle("best batch", ls="none", marker="o", ms=9, color=style.INK)
    return style.side_legend(figure, [*style.handles(looks, ms=5.5, lw=1.4), best, edge])


def _above_best(table: pd.DataFrame, seq_len: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of each batch, mean loss above the best one, and half the interval, [batch]."""
    losses = table.to_numpy(float)
    apart = losses - losses[int(np.argmin(losses.mean(axis=1)))]
    return seq_len * table.index.to_numpy(float), apart.mean(axis=1), half_interval(apart.T)


def half_lives_figure(by_ending: Mapping[str, pd.DataFrame]) -> Figure:
    """Losses against the half-life of the second moment, a line a batch, a column an ending.

    Above the losses themselves; below each batch's less that of its best rule, with intervals
    paired by seed. One curve for all batches would say that the half-life alone decides.

    Args:
        by_ending: columns batch, tokens, steps (of the half-life), loss, above, half (nats; half
            the interval).
    """
    batches = sorted({float(b) for table in by_ending.values() for b in table["batch"]})
    looks = style.batch_styles(batches)
    size = {"width": 2.5 * max(len(by_ending), 2) + 1.6, "sharex": True, "sharey": "row"}
    figure, axes = style.new_figure(5.2, 2, max(len(by_ending), 1), **size)
    for (top, bottom), (ending, table) in zip(axes.T, by_ending.items(), strict=True):
        bottom.axhline(0, color=style.INK, lw=0.8, zorder=1)
        for batch, look in looks.items():
            rows = table.loc[table["batch"] == batch].sort_values("tokens")
            x, loss, above, half = style.columns(rows, "tokens", "loss", "above", "half")
            top.plot(x, loss, lw=1.3, ms=5, **look)
            _thousandth_bars(bottom, x, above, half, look)
        style.panel_title(top, LR_PHASES[ending].short)
        bottom.set_xscale("log")
        bottom.set_xlabel("half-life (tokens)")
        style.tokens_axis(bottom.xaxis, most=4)
    axes[0, 0].set_ylabel("test loss (nats per token)")
    axes[1, 0].set_ylim(-0.25 * MOST_ABOVE, MOST_ABOVE)
    axes[1, 0].set_ylabel("less that of the batch's best\nrule (1e-3 nats per token)")
    bars = style.handle("bars: 95% intervals,\npaired by seed", ls="none")
    return style.side_legend(figure, [*style.handles(looks, "batch {:g}", lw=1.3, ms=5), bars])


def switches_figure(
    panels: Mapping[str, Mapping[str, pd.DataFrame]], reference: str, constants: Collection[str]
) -> Figure:
    """Losses of constants and of growing batches less those of one constant, over tokens.

    Constants are grey and named at their ends.

    Args:
        panels: a title to tables of tokens, difference, low, high (nats) by name.
        reference: the constant that differences are taken to.
        constants: the names that are of constants.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    grown = lined_styles(name for name in names if name not in constants)
    size = {"width": 3.5 * max(len(panels), 1) + 2.4, "sharey": True}
    figure, axes = style.new_figure(3.9, 1, max(len(panels), 1), **size)
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        ax.axhline(0, color=style.INK, lw=0.9, zorder=1)
        for i, (name, table) in enumerate(lines.items()):
            x, value, low, high = style.columns(table, "tokens", "difference", "low", "high")
            look = grown.get(name, _GREY)
            ax.fill_between(x, 1e3 * low, 1e3 * high, color=look["color"], alpha=0.15, lw=0)
            ax.plot(x, 1e3 * value, ms=4, markevery=(i % 4, 4), **{"lw": 1.4, **look})
        _name_constants(ax, {name: lines[name] for name in lines if name not in grown})
        style.panel_title(ax, title, xlabel="tokens consumed")
        style.tokens_axis(ax.xaxis)
    label = f"held-out loss less that of constant\n{reference} (1e-3 nats per token)"
    axes[0, 0].set_ylabel(label)
    zero = style.handle(f"constant {reference}", color=style.INK, lw=0.9)
    entries = [*style.handles(grown, lw=1.4, ms=4), zero, style.handle("other constants", **_GREY)]
    entries.append(style.handle("bands: 95% intervals,\npaired by seed", ls="none"))
    return style.side_legend(figure, entries)


def _name_constants(ax: Axes, lines: Mapping[str, pd.DataFrame]) -> None:
    """The names of constants right of the ends of their lines, from below, none on another."""
    ends = sorted(
        (1e3 * float(table["difference"].iloc[-1]), name) for name, table in lines.items()
    )
    low, high = ax.get_ylim()
    least = -np.inf
    for end, name in ends:
        least = max(end, least + 0.05 * (high - low))
        at = float(lines[name]["tokens"].iloc[-1]), least
        place = {"textcoords": "offset points", "va": "center", "size": 8}
        ax.annotate(name, at, (4, 0), color="#555555", **place)


def published_figure(dense: pd.DataFrame, beta2: pd.DataFrame) -> Figure:
    """Two public tables: losses above the least over the batch, by cell and by beta2.

    Args:
        dense: columns params, tokens, batch, seq_len, loss: the least over rates.
        beta2: columns d_model, batch, beta2, c4_en_bpb.
    """
    widths = sorted(set(beta2["d_model"]))
    figure, axes = style.new_figure(
        3.4, 1, 1 + len(widths), 11.6, width_ratios=[1.3] + [1] * len(widths)
    )
    ax, *others = axes[0]
    for _, rows in dense.groupby(["params", "tokens"]):
        x, loss = style.columns(rows.sort_values("batch"), "batch", "loss")
        x, best = x * rows["seq_len"].iloc[0], int(np.argmin(loss))
        ax.plot(x, loss - loss[best], color=style.FAINT, lw=0.9)
        inside = 0 < best < len(x) - 1
        ax.plot(x[best], 0, "o", ms=6, color="#10375c", mfc="#10375c" if inside else "white")
    ax.set(ylim=(-0.005, 0.1), xlabel="batch (tokens)")
    ax.set_xscale("log")
    style.tokens_axis(ax.xaxis, most=5)
    ax.set_ylabel("loss above the least (nats per token)")
    style.panel_title(ax, f"{dense.groupby(['params', 'tokens']).ngroups} (N, D), rate tuned")
    looks = style.named_styles(sorted(set(beta2["beta2"])))
    for ax, width in zip(others, widths, strict=True):
        for value, look in looks.items():
            rows = beta2.loc[(beta2["d_model"] == width) & (beta2["beta2"] == value)]
            x, loss = style.columns(rows.sort_values("batch"), "batch", "c4_en_bpb")
            best = int(np.argmin(loss))
            ax.plot(x, loss, lw=1.3, ms=4, **look)
            ax.plot(x[best], loss[best], ls="none", ms=10, mfc="none", mew=1.3, **look)
        style.batch_axis(ax.xaxis, set(beta2["batch"]))
        style.panel_title(ax, f"d_model {width}", xlabel="batch (sequences)")
    others[0].set_ylabel("loss (bits per byte)")
    entries = style.handles(looks, "beta2 {:g}", lw=1.3, ms=4)
    entries.append(
        style.handle("best batch\nof the line", ls="none", marker="o", ms=9, color="#10375c")
    )
    return style.side_legend(figure, entries)


def _thousandth_bars(
    ax: Axes, x: np.ndarray, above: np.ndarray, half: np.ndarray, look: dict[str, Any]
) -> None:
    """Differences in 1e-3 nats, with half the length of their bars."""
    style.bars(ax, (x, 1e3 * above, 1e3 * (above - half), 1e3 * (above + half)), look)


def rules(part: Part) -> Figure:
    """Final losses of constant batches by rule and ending, at their own rates."""
    return best_batch_figure(part.judged, part.seq_len)


def envelope(first: Part, second: Part) -> Figure:
    """The same of four rules, and of each batch at its best rule."""
    return best_batch_figure(tables.enveloped(first, second), first.seq_len)


def half_lives(first: Part, second: Part) -> Figure:
    """Losses of four rules against the half-life that each makes of a batch."""
    return half_lives_figure(tables.half_lives(first, second))


def long(part: Part, points: pd.DataFrame, laws: Laws) -> Figure:
    """Constant batches whose curves cross, and E(S) at two targets."""
    pairs = [pair for pair in crossing_pairs(crossings(points)) if pair[0] == SMALLEST]
    reached = tables.reached(points)
    common = reached.index[(reached > 0).sum(axis=1) >= min(8, reached.shape[1])]
    ends = (float(common[len(common) // 2]), float(common[-1]))
    return crossing_figure(tables.at_one_rate(part).runs, pairs, points, laws.fits, ends)


def switches(part: Part) -> Figure:
    """Schedules and constants less one constant at equal tokens."""
    panels = {title: tables.beside(part, column, REFERENCE) for title, column in CURVES.items()}
    return switches_figure(panels, REFERENCE, tables.constants(part))


def clocks(part: Part, steps: Part) -> Figure:
    """A grown batch beside its constants, at equal tokens and at equal steps."""
    curves: dict[str, pd.DataFrame] = {}
    for batch, rows in tables.at_one_rate(part).runs.groupby("schedule.batch", sort=False):
        curves[tables.short(str(batch), part)] = tables.mean_curve(rows)
    longer = tables.at_one_rate(steps).runs
    largest = longer["batch"].max()
    curves[f"{largest}, as many steps"] = tables.mean_curve(longer.loc[longer["batch"] == largest])
    return clocks_figure(curves)


def main(results: Path) -> None:
    """Writes every figure whose parts are there."""
    figures: dict[str, tuple[Callable[..., Figure], tuple[str, ...]]] = {
        "rules_h100/best_batch": (rules, ("rules_h100",)),
        "slower/best_batch": (envelope, ("rules_h100", "slower")),
        "slower/half_lives": (half_lives, ("rules_h100", "slower")),
        "short/best_batch": (rules, ("short",)),
        "switch/switches": (switches, ("switch",)),
        "large/clocks": (clocks, ("large", "steps")),
    }
    for name, (figure, parts) in figures.items():
        if all((results / part).is_dir() for part in parts):
            save(figure(*(read_part(results / part) for part in parts)), results / f"{name}.png")
    if (results / "long").is_dir():
        part = read_part(results / "long")
        tables.write_laws(part, results / "long")
        write_table(tables.left_out(part), results / "long/left_out.csv")
        measured = tables.read_laws(part, results / "long")
        save(long(part, *measured), results / "long/crossing.png")


def save(figure: Figure, path: Path) -> None:
    """Writes a figure and says so."""
    figure.savefig(path, dpi=130)
    print(path)


if __name__ == "__main__":
    main(folder_asked(__doc__))
