"""The figures of what decides the best batch, from the tables of the parts.

    python -m experiments.second_moment.part_figures results/second_moment

writes them as PNG beside the tables, and E(S) of the part long as points.csv and fits.json.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from bss.points.crossings import crossing_pairs, crossings
from bss.points.equal_steps import mean_curve
from bss.points.standings import ENDINGS
from experiments.es_wsd.measure import Laws
from experiments.late_switch.figures import clocks_figure
from experiments.second_moment import growing, tables
from experiments.second_moment.crossing_figure import crossing_figure
from experiments.second_moment.figures import (
    best_batch_figure,
    half_lives_figure,
    switches_figure,
)
from experiments.second_moment.losses import Part, read_part

CURVES = {ENDINGS[ending].short: column for ending, column in growing.LOSSES.items()}
SMALLEST, REFERENCE = 1, "2"


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
        curves[tables.short(str(batch), part)] = mean_curve(rows)
    longer = tables.at_one_rate(steps).runs
    largest = longer["batch"].max()
    curves[f"{largest}, as many steps"] = mean_curve(longer.loc[longer["batch"] == largest])
    return clocks_figure(curves)


def main(results: Path) -> None:
    """Writes every figure whose parts are there."""
    figures: dict[str, tuple[Callable[..., Figure], tuple[str, ...]]] = {
        "rules/best_batch": (rules, ("rules",)),
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
        measured = tables.read_laws(part, results / "long")
        save(long(part, *measured), results / "long/crossing.png")


def save(figure: Figure, path: Path) -> None:
    """Writes a figure and says so."""
    figure.savefig(path, dpi=130)
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
