"""Groups of runs whose losses differ by far more than their noise: two conditions, not seeds.

Runs of one batch size and LR should differ by the noise of their seeds. If they differ by nearly
the same factor in tokens at every batch size, they are of two conditions, e.g. two corpora. No law
holds for both. The level of a run is its mean log tokens to a loss, relative to the mean of the
runs of its batch size. Levels are explained by a column or by a part of the run names, with an
offset for each of its values (analysis of variance, derived here).

Conditions are not recognized if they share fewer batch sizes than SHARED, or fewer than SORTED if
no column or part of the names separates them: one offset may be the luck of a run. A warning names
such runs if they differ by far more than seeds do (`apart`).
"""

import itertools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import fdtrc

from bss.points.curve import (
    FEWEST,
    Smooth,
    loss_column,
    peak_rates,
    rate_numbers,
    smooth_curves,
)

EFOLD = 1.0
"""Tokens at the end of the common range over which losses are compared, in e-folds."""
EARLY = 3.0
"""E-folds before the median end of runs from which a run that ends there is left out (1/20)."""
GRID = 20
"""Losses compared in it: neighbours of more are correlated (derived here)."""
SEED_NOISE = 0.004
"""Noise SD of a run's loss in nats: that of the committed results."""
USUAL_SLOPE = 0.27
"""Nats per e-fold of tokens, the median of the committed curves."""
FLAT = 0.1
"""Of the usual slope: a flatter curve does not turn losses into tokens (derived here)."""
PRIOR = 4.0
"""Degrees of freedom of the usual noise: few runs measure their own badly (derived here)."""
FACTOR = 1.1
"""Ratio of tokens from which runs differ by a condition: 6 SDs of the usual noise of seeds."""
UNNAMED_FACTOR = 1.2
"""The same if no column or name separates the runs, which are then sorted by their losses."""
RARE = 3e-4
"""Probability of such offsets by chance, for each of about ten ways to separate the runs: 1%."""
SHOWN = 0.03
"""Factor of the chance by the noise that the levels show, which few runs measure badly."""
LARGE = 2.0
"""Ratio of tokens that no seed of a run that ended makes (derived here: 12 SDs of usual noise)."""
SHOWN_LARGE = 0.003
"""SHOWN for a larger ratio, of which the levels of two batch sizes measure the noise by one SD."""
CLEAR = 20.0
"""Usual noise SDs between two runs of one batch size that a warning names."""
EXACT = 1e-12
"""Of the usual variance: levels that differ by less are equal but for rounding."""
PAIRS_RARE = 1e-5
"""The same for pairs of runs sorted by their losses, below which 0.5% of noise lies (simulated)."""
APART = 8.0
"""Noise SDs between sorted pairs: chance sorts normal noise 2 SDs apart, at any number of cells."""
MOST = 4
"""Values of a column of conditions: more are names of runs."""
SHARED = 2
"""Batch sizes that have runs of two conditions: at one the offset is not seen to repeat."""
SORTED = 3
"""Batch sizes whose runs are sorted by their losses: at fewer, chance sorts them alike."""


KEEP = " --keep run="
"""Between names of runs that are kept one at a time."""


class Groups(NamedTuple):
    """Runs of several conditions.

    Attributes:
        runs: names of runs by condition, as `--keep` selects the condition: COLUMN=VALUE.
        factor: ratio of tokens to a loss between the conditions.
        others: the same within a condition.
    """

    runs: dict[str, list[str]]
    factor: float
    others: float

    def __str__(self) -> str:
        """Return a question with the groups and how to keep one."""
        names = "; ".join(kept.replace(KEEP, ", ").removeprefix("run=") for kept in self.runs)
        return (
            f"runs of one batch differ by x {self.factor:.2g}, others by x {self.others:.3g}: "
            f"{len(self.runs)} conditions? {names}; keep one with --keep {next(iter(self.runs))}"
        )


class Level(NamedTuple):
    """A run's mean loss over tokens that the runs of its cell share.

    Attributes:
        run: Its name.
        cell: What is compared with it: the runs of the same cell.
        loss: In nats, up to a constant of the cell.
        slope: Nats per e-fold of tokens, which turns a loss into log tokens.
        noise: Usual noise SD of the loss.
    """

    run: str
    cell: Any
    loss: float
    slope: float
    noise: float


def run_groups(runs: pd.DataFrame) -> Groups | None:
    """Return the conditions of a run table that no column of settings has; None if it has one.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it, without copies and ramps.
    """
    column = loss_column(runs)
    if runs["run"].nunique() == runs["batch"].nunique():  # no two runs to compare
        return None
    place = _cells(runs)
    cells: dict[Any, dict[str, Smooth]] = {}
    for name, curve in smooth_curves(runs.loc[_has_curve(runs, column)], column).items():
        cells.setdefault(place[name], {})[name] = curve
    levels = [level for cell, some in cells.items() for level in _levels(cell, some)]
    return find_groups(levels, runs)


def apart(runs: pd.DataFrame) -> list[str]:
    """Return a warning per batch size whose runs differ by far more than seeds do.

    It is for tables in which too few batch sizes have several runs to see conditions.

    Args:
        runs: As for `run_groups`.
    """
    if runs["run"].nunique() == runs["batch"].nunique():
        return []
    column = loss_column(runs)
    place = _cells(runs)
    cells: dict[Any, list[str]] = {}
    for name in runs.loc[_has_curve(runs, column), "run"].unique():
        cells.setdefault(place[name], []).append(name)
    several = {cell: names for cell, names in cells.items() if len(names) > 1}
    found: list[str] = []
    for cell, names in several.items() if len(several) < SORTED else ():
        some = runs.loc[runs["run"].isin(names)]
        levels = sorted(_levels(cell, smooth_curves(some, column)), key=lambda level: level.loss)
        if not levels:
            continue
        spread = (levels[-1].loss - levels[0].loss) / levels[0].slope
        noise = max(level.noise for level in levels) / levels[0].slope
        if spread > max(np.log(LARGE), CLEAR * noise):
            best = levels[0].run
            batch = some.loc[some["run"] == best, "batch"].iloc[0]
            found.append(
                f"runs of batch {batch} differ by x {np.exp(spread):.2g} in tokens to a loss: "
                f"{best}, {levels[-1].run}; if they are 2 conditions, keep one, e.g. "
                f"--keep run={best}"
            )
    return found


def _has_curve(runs: pd.DataFrame, column: str) -> np.ndarray:
    """Return a mask [n] of the rows of runs that have enough losses for a curve."""
    measured = runs[column].notna() & (runs["tokens"] > 0)
    return (measured.groupby(runs["run"]).transform("sum") >= FEWEST).to_numpy()


def _cells(runs: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return what the runs of a cell share: batch, peak LR and its decay, to two digits, by run."""
    first = runs.drop_duplicates("run").set_index("run")
    rates = pd.Series(rate_numbers(runs, "lr") if "lr" in runs else 1.0, runs["run"])
    by_run = rates.groupby(level=0, sort=False)
    last = rates[~rates.index.duplicated(keep="last")]
    known = np.isfinite(rates).groupby(level=0, sort=False).any()
    shared = [first[c].astype(str) for c in ("model", "params", "seq_len", "batch") if c in first]
    shared.append(peak_rates(runs).map("{:.2g}".format))
    shared.append((last / by_run.max()).where(known, 1.0).map("{:.1f}".format))
    table = pd.concat(shared, axis=1)
    return dict(zip(table.index, table.itertuples(index=False, name=None), strict=True))


def _levels(cell: Any, curves: dict[str, Smooth]) -> list[Level]:
    """Return the levels of the runs of a cell, from losses over the tokens that all have."""
    latest = np.median([curve.log_tokens[-1] for curve in curves.values()])
    usable = {n: curve for n, curve in curves.items() if curve.log_tokens[-1] > latest - EARLY}
    start = max(curve.log_tokens[0] for curve in usable.values())
    end = min(curve.log_tokens[-1] for curve in usable.values())
    if len(usable) < 2 or not end > start:
        return []
    x = np.linspace(max(start, end - EFOLD), end, GRID)
    losses = {n: np.interp(x, curve.log_tokens, curve.loss) for n, curve in usable.items()}
    mean = np.mean([*losses.values()], axis=0)
    slope = max((mean[0] - mean[-1]) / (x[-1] - x[0]), FLAT * USUAL_SLOPE)
    return [
        Level(n, cell, float(loss.mean()), slope, _noise(usable[n])) for n, loss in losses.items()
    ]


def _noise(curve: Smooth) -> float:
    """Return the usual noise of a mean loss in nats: of seeds, and of its evaluations."""
    tokens = curve.tokens
    known = tokens >= np.exp(curve.log_tokens[0]) * (1 - NEAR_TOKENS)
    known &= tokens <= np.exp(curve.log_tokens[-1]) * (1 + NEAR_TOKENS)
    known &= np.isfinite(curve.measured)
    x = np.log(tokens[known])
    rest = curve.measured[known] - np.interp(x, curve.log_tokens, curve.loss)
    late = x > curve.log_tokens[-1] - EFOLD
    return float(np.hypot(SEED_NOISE, rest[late].std() / np.sqrt(late.sum())))


NEAR_TOKENS = 1e-9
"""Relative difference of tokens that are equal but for rounding."""


def row_levels(rows: pd.DataFrame, cell: Iterable[str], column: str, slope: float) -> list[Level]:
    """Return the levels of the runs of points or final losses.

    A level is a mean over targets, because a run has the same luck at all its targets. It is the
    mean deviation of a run from the mean of its cell's runs.

    Args:
        rows: With a column `run`.
        cell: Columns that repetitions share.
        column: Log tokens, or losses in nats.
        slope: Nats per unit of the column: 1 for losses.
    """
    names = [name for name in cell if name in rows]
    own = [name for name in names if name != "target_loss"]
    mean = rows.groupby(names, dropna=False)[column].transform("mean")
    compared = rows.groupby(names, dropna=False)["run"].transform("nunique") > 1
    off = rows.assign(off=rows[column] - mean).loc[compared]
    return [
        Level(str(run), key, float(value) * slope, USUAL_SLOPE, SEED_NOISE)
        for key, some in off.groupby(own, dropna=False, sort=False)
        for run, value in some.groupby("run", sort=False)["off"].mean().items()
    ]


def find_groups(levels: list[Level], table: pd.DataFrame) -> Groups | None:
    """Return the conditions that explain levels of runs, or None.

    Args:
        levels: Of runs; a cell with one run has no level.
        table: Rows of the runs by `run`; columns with one value a run may be conditions.
    """
    counts: dict[Any, set[str]] = {}
    for level in levels:
        counts.setdefault(level.cell, set()).add(level.run)
    compared = [level for level in levels if len(counts[level.cell]) > 1]
    if len({level.cell for level in compared}) < SHARED:
        return None
    names = list(dict.fromkeys(table["run"].astype(str)))
    first = table.drop_duplicates("run").set_index(table.drop_duplicates("run")["run"].astype(str))
    ways = [*_by_columns(first, names), *_by_names(names)]
    tried = [(way, _explained(compared, way)) for way in ways]
    known = [
        (chance, way, effect, noise)
        for way, (effect, noise, chance) in tried
        if chance < RARE and effect > np.log(FACTOR)
    ]
    if not known:
        known = _sorted_apart(compared)
    if not known:
        return None
    _, way, effect, noise = min(known, key=lambda one: one[0])
    kept: dict[str, list[str]] = {}
    for run, value in way.items():
        kept.setdefault(value, []).append(run)
    return Groups(kept, float(np.exp(effect)), float(np.exp(noise)))


def _by_columns(first: pd.DataFrame, names: list[str]) -> list[dict[str, str]]:
    """Return the value of each column that may be a condition, by run, as `--keep` takes it."""
    rows = first.loc[names]
    ways = []
    for column in rows:
        if not may_separate(str(column)):
            continue
        values = rows[column].astype(str)
        if 1 < values.nunique() <= min(MOST, len(names) / 2):
            ways.append({run: f"{column}={value}" for run, value in values.items()})
    return ways


def may_separate(column: str) -> bool:
    """Return whether a column may be a condition: none that repetitions differ in or measure."""
    return column not in NO_CONDITION and not any(part in column for part in MEASURED)


NO_CONDITION = {
    "run", "batch", "batch_tokens", "lr", "peak_lr", "seed", "data_seed", "step", "steps", "tokens",
    "reached", "eval_spacing", "budget_tokens", "trials", "bracketed", "target_loss", "lr_phase",
    "weights", "tokens_to_target", "restarts", "status", "diverged", "count",
}  # fmt: skip
"""Columns that repetitions may differ in."""
MEASURED = ("loss", "seconds", "time", "seed", "grad", "flops", "noise")
"""Parts of the names of columns that are measured, or are seeds."""


def _by_names(names: list[str]) -> list[dict[str, str]]:
    """Return patterns of run names by run, as `--keep` takes them: the parts of names by place."""
    parts = {name: re.split(r"([-_./ ]+)", name) for name in names}
    shortest = min(len(some) for some in parts.values())
    ways: list[dict[str, str]] = []
    for place in range(0, shortest, 2):  # parts and their separators take turns
        ways.append({name: _glob(some, place) for name, some in parts.items()})
        ways.append({name: _glob(some, len(some) - 1 - place) for name, some in parts.items()})
    letters = {name: re.match(r"[A-Za-z]*", name)[0] for name in names}  # type: ignore[index]
    ways.append({name: f"run={start}*" for name, start in letters.items()})
    found = [way for way in ways if 1 < len({*way.values()}) <= MOST]
    return [way for way in found if all(_selects(way, value) for value in {*way.values()})]


def _glob(parts: list[str], place: int) -> str:
    """Return the pattern of names with a part at a place; parts and separators take turns."""
    start = f"*{parts[place - 1]}" if place else ""
    end = f"{parts[place + 1]}*" if place + 1 < len(parts) else ""
    return f"run={start}{parts[place]}{end}"


def _selects(way: dict[str, str], pattern: str) -> bool:
    """Whether a pattern selects the runs of its group and no others."""
    from fnmatch import fnmatchcase

    glob = pattern.partition("=")[2]
    return all(fnmatchcase(run, glob) == (value == pattern) for run, value in way.items())


def _explained(levels: list[Level], way: dict[str, str]) -> tuple[float, float, float]:
    """Return the largest offset between values, the noise SD in log tokens, and the chance of it.

    A condition moves losses, or log tokens, by nearly the same at all batch sizes; the less likely
    of the two by chance counts.
    """
    mixed: dict[Any, set[str]] = {}
    for level in levels:
        mixed.setdefault(level.cell, set()).add(way[level.run])
    used = [level for level in levels if len(mixed[level.cell]) > 1]
    if len({level.cell for level in used}) < SHARED:
        return 0.0, 0.0, 1.0
    slopes = np.array([level.slope for level in used])
    usual = np.array([level.noise for level in used])
    losses = np.array([level.loss for level in used])
    cells = pd.factorize(pd.Series([level.cell for level in used]))[0]
    values = pd.factorize(pd.Series([way[level.run] for level in used]))[0]
    slope = float(np.mean(slopes))
    return min(
        (_offsets(losses / scale, usual / scale, cells, values) for scale in (slopes, slope)),
        key=lambda one: one[-1],
    )


def _offsets(
    y: np.ndarray, usual: np.ndarray, cells: np.ndarray, values: np.ndarray
) -> tuple[float, float, float]:
    """Return the largest offset between values, the noise SD, and the chance of the offsets.

    Levels y [n] are an offset of the cell, an offset of the value, and noise. The chance is the
    larger of two F tests: with the noise that the levels show (times SHOWN), and with this noise
    and the usual noise, which has PRIOR degrees of freedom.
    """
    blocks = np.eye(cells.max() + 1)[cells]
    design = np.column_stack([blocks, np.eye(values.max() + 1)[values][:, 1:]])
    effects = np.linalg.lstsq(design, y, rcond=None)[0][blocks.shape[1] :]
    rest = _squares(design, y)
    explained = max(_squares(blocks, y) - rest, 0.0)
    degrees = len(y) - int(np.linalg.matrix_rank(design))
    count = len(effects)
    prior = PRIOR * float(np.mean(usual**2))
    variance = (rest + prior) / (degrees + PRIOR)
    chances = [float(fdtrc(count, degrees + PRIOR, explained / count / variance))]
    if degrees:
        shown = max(rest / degrees, EXACT * prior)
        factor = SHOWN_LARGE if np.ptp(np.append(0.0, effects)) > np.log(LARGE) else SHOWN
        chances.append(factor * float(fdtrc(count, degrees, explained / count / shown)))
    return float(np.ptp(np.append(0.0, effects))), float(np.sqrt(variance)), max(chances)


def _squares(design: np.ndarray, y: np.ndarray) -> float:
    return float(np.sum((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2))


def _sorted_apart(levels: list[Level]) -> list[tuple[float, dict[str, str], float, float]]:
    """Return runs sorted into two conditions at the widest gap of each cell, unless by chance."""
    way: dict[str, str] = {}
    cells = 0
    most = 0
    ordered = sorted(levels, key=lambda level: str(level.cell))
    for _, some in itertools.groupby(ordered, key=lambda level: str(level.cell)):
        rows = sorted(some, key=lambda level: level.loss)
        gaps = np.diff([level.loss for level in rows])
        cut = int(gaps.argmax()) + 1
        low = [level.run for level in rows[:cut]]
        way |= {level.run: "fewer tokens" if level.run in low else "more tokens" for level in rows}
        cells += 1
        most = max(most, len(rows))
    if cells < SORTED or most > 2:  # sorting moves more runs apart
        return []
    effect, noise, chance = _explained(levels, way)
    if chance >= PAIRS_RARE or effect <= APART * noise or effect <= np.log(UNNAMED_FACTOR):
        return []
    kinds = {kind: [run for run, its in way.items() if its == kind] for kind in {*way.values()}}
    names = {kind: f"run={KEEP.join(some)}" for kind, some in kinds.items()}
    return [(chance, {run: names[kind] for run, kind in way.items()}, effect, noise)]
