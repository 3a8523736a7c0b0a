"""Runs and plans as segments of constant learning rate and batch, and the losses along them.

A row of a run table has the batch of the steps since the previous row, and the learning rate of its
last step. Between rows of one batch the learning rate is taken as linear, and in the warm-up as
rising from 0. A path has about SEGMENTS segments, which bounds the cost of the law whatever the
number of rows (derived here). Several paths are padded to one problem, which says what the runs
identify by design.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import refuse_mixed
from bss.points.curve import loss_column
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.tables import check_runs
from bss.tables.columns import Origin, numbers
from bss.units import format_tokens

COLUMNS = ("step", "tokens", "batch", "loss", "lr")
SEGMENTS = 48  # per run: a plan and its run table agree to 1e-5 in loss, 1e-4 under a cosine
FINE = 16  # stretches of a planned LR per segment, over which its mean is taken
CORNER = 1e-4  # of the peak LR: a larger departure from the line before is a corner, not rounding
# Shares of a run's steps at which long segments are cut, so that the signal is level on each. Fits
# and predictions use the same cuts, because parameters compensate for the error of the segments.
_EARLY = np.concatenate([np.geomspace(1e-4, 1e-2, 6, endpoint=False), np.geomspace(1e-2, 0.1, 13)])
# After the early cuts, evenly: the first is a segment beyond them.
_CUTS = np.concatenate([[0.0], _EARLY, np.arange(6, SEGMENTS + 1) / SEGMENTS])
READINGS = 32  # losses kept per run: neighbours of more are correlated and add nothing but cost
LOSSES = 16 * READINGS  # of all runs together, at least 8 per run: bounds the cost of a fit
VARIED = 1.2  # ratio of the largest to the smallest value from which a quantity varies


class Segments(NamedTuple):
    """Trajectories [R, G] of segments in order: steps (0 is padding), learning rate, batch."""

    steps: Any
    lr: Any
    batch: Any


class EvalPoints(NamedTuple):
    """The points [R, N] of the losses: index of the segment, and fraction of the segment done."""

    segment: Any
    fraction: Any


@dataclass(frozen=True)
class Path:
    """One run.

    Attributes:
        run: its name.
        steps, lr, batch: [G], of the segments in order, the batch in sequences.
        at: [N], steps at each evaluated loss.
        tokens, loss: [N], the loss in nats; NaN if it was not measured.
        measured: number of losses in the table, of which N are kept or averaged.
    """

    run: str
    steps: np.ndarray
    lr: np.ndarray
    batch: np.ndarray
    at: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    measured: int = 0


def run_path(rows: pd.DataFrame, warmup: int, since: int, most: int | None) -> Path:
    """Return a run's rows as a path.

    Args:
        rows: of a checked run table, in order, with columns lr and loss; a row without a loss gives
            the schedule alone.
        warmup, since: in tokens, as in `bss.laws.functional.data.curves_of`.
        most: number of losses to keep; None evaluates every row after step 0, with or without loss.

    Raises:
        InputError: if the learning rate is never above 0.
    """
    name = str(rows["run"].iloc[0])
    seq_len = int(rows["seq_len"].iloc[0])
    table = np.stack([rows[key].to_numpy(float) for key in COLUMNS])
    if table[0, 0] == 0:  # an evaluation before the first step
        table = table[:, 1:]
    if not (table.shape[1] and table[-1].max() > 0):
        raise InputError(f"run {name}: its rate is never above 0; correct lr, or leave it out")
    (step, tokens, batch, loss, lr), corner = _with_corner(table, warmup)
    rising = _rising(lr)
    taken = np.diff(step, prepend=0.0)
    sequences = np.diff(tokens, prepend=0.0) / seq_len
    before = np.append(batch[:1], batch[:-1])
    lr_before = np.append(0.0 if warmup or rising[0] else lr[0], lr[:-1])
    mixed = np.abs(sequences - taken * batch) >= batch
    switched = mixed & (batch != before)
    # Steps and tokens between two rows determine the number of steps of either batch.
    of_new = (sequences - taken * before) / np.where(switched, batch - before, 1)
    new = np.clip(np.where(switched, of_new, taken), 0, taken)
    mean_batch = np.where(mixed & ~switched, sequences / np.maximum(taken, 1), batch)
    # A row logs the LR at the midpoint of its last step, half a step before the row.
    half = np.where((batch == before) & ~corner, lr - lr_before, 0) / (2 * np.maximum(taken, 1))
    begin = np.where(batch == before, lr_before + half, lr)
    begin[0] = lr_before[0]
    pairs = (taken - new, new), (lr_before, begin), (lr_before, lr + half), (before, mean_batch)
    segments = _segments(*(np.column_stack(pair).ravel() for pair in pairs))
    found = np.array([step, tokens, loss])
    if most is None:
        return Path(name, *segments, *found[:, ~corner])
    usable = np.isfinite(loss) & (tokens > max(warmup, since)) & ~rising
    return Path(name, *segments, *_thinned(found, batch, usable, most), measured=int(usable.sum()))


def _with_corner(table: np.ndarray, warmup: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the table [5, rows] with a row at the end of the warm-up, and a mask of that row."""
    step, tokens, batch, _, lr = table
    i = int(np.searchsorted(tokens, warmup))
    none = np.zeros(len(step), bool)
    if not warmup or i == len(tokens) or tokens[i] == warmup or (i and batch[i] != batch[i - 1]):
        return table, none
    at = np.interp(warmup, np.append(0.0, tokens), np.append(0.0, step))
    corner = [at, warmup, batch[i], np.nan, lr[i]]
    return np.insert(table, i, corner, axis=1), np.insert(none, i, True)


def _rising(lr: np.ndarray) -> np.ndarray:
    """Return a mask of the warm-up: rows from the start on, while the next row's LR is higher."""
    rounding = 1e-9  # of the LRs of a table
    grows = np.append(np.diff(lr) > rounding * lr[1:], False)
    return np.cumprod(grows).astype(bool)


def _segments(
    steps: np.ndarray, begin: np.ndarray, end: np.ndarray, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return segments [G] of mean LR and batch from [K] stretches of an LR linear in steps.

    Long stretches are cut. Cuts are also made at changes of the batch or of the slope of the LR.
    Changes are ignored if there are too many, e.g. at every row of a cosine.
    """
    used = steps > 0
    steps, begin, end, batch = np.stack([steps, begin, end, batch])[:, used]
    rounding = 1e-9  # of sums of steps
    ends = np.cumsum(steps)
    total = ends[-1]
    peak = max(begin.max(), end.max())
    switched = np.diff(batch) != 0
    bent = np.diff((end - begin) / steps) * np.minimum(steps[1:], steps[:-1])
    bent = np.maximum(np.abs(bent), np.abs(begin[1:] - end[:-1])) > CORNER * peak
    fewer = SEGMENTS // 4  # more corners are those of a smooth LR, one at each row
    most = (switched, SEGMENTS), (bent, fewer)
    changes = [ends[:-1][some] for some, many in most if some.sum() < many]
    edges = np.unique(np.concatenate([_CUTS * total, *changes]))
    edges = np.append(edges[:-1][np.diff(edges) > rounding * total], total)
    which = np.minimum(np.searchsorted(ends, edges, side="right"), len(ends) - 1)
    into = edges - (ends - steps)[which]
    slope = (end - begin)[which] / steps[which]
    rates = np.append(0.0, np.cumsum(steps * (begin + end) / 2))[which]
    rates += into * (begin[which] + slope * into / 2)
    sequences = np.append(0.0, np.cumsum(steps * batch))[which] + into * batch[which]
    taken = np.diff(edges)
    mean = np.diff(sequences) / taken
    first = batch[which[:-1]]
    batches = np.where(np.isclose(mean, first, rtol=rounding), first, mean)
    return taken, np.diff(rates) / taken, batches


def _thinned(found: np.ndarray, batch: np.ndarray, usable: np.ndarray, most: int) -> np.ndarray:
    """Return steps, tokens and losses [3, n] of about `most` usable rows.

    With at most 4·`most` usable rows, evenly spaced rows are picked. With more rows, e.g. a
    training loss at every step, each result is the geometric mean of neighbouring rows of one
    batch. A geometric mean of points on a power law is on the same power law.
    """
    rows = np.flatnonzero(usable)
    if len(rows) <= 4 * most:  # from which on a mean is of four rows
        picked = np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))
        return found[:, rows[picked[: len(rows)]]]
    bins = np.arange(len(rows)) * most // len(rows)
    stage = np.append(0, np.cumsum(np.diff(batch) != 0))[rows]
    by_stage = stage[-1] - stage[0] < most
    changes = (np.diff(bins) != 0) | (by_stage & (np.diff(stage) != 0))
    group = np.append(0, np.cumsum(changes))
    return np.array(
        [np.exp(np.bincount(group, np.log(x[rows])) / np.bincount(group)) for x in found]
    )


def plan_path(
    schedule: BatchSchedule,
    tokens: int,
    seq_len: int,
    rate: Callable[[Any], Any] | float,
    at: np.ndarray | None = None,
) -> Path:
    """Return the path of a schedule, as `bss.schedules.plan` resolves it.

    Args:
        schedule: batches in sequences.
        tokens: budget.
        seq_len: tokens per sequence.
        rate: the learning rate, or a function of tokens, e.g. `bss.schedules.rates.wsd`.
        at: [N] tokens at which losses are evaluated; by default the end of the last step.

    Raises:
        InputError: if `at` is outside the budget, the budget has no step, or the schedule changes
            the length of sequences.
    """
    plan = resolve(schedule, tokens, seq_len)
    if plan.seq_lens:
        raise InputError(f"batch: {schedule} changes the length of sequences; a fit has one length")
    bounds = np.array([*(s.start_step for s in plan.segments), plan.steps], float)
    consumed = np.array([*(s.start_tokens for s in plan.segments), plan.tokens], float)
    batch = np.array([segment.batch for segment in plan.segments], float)
    wanted = consumed[-1:] if at is None else np.asarray(at, float)
    if not (wanted.min() > 0 and wanted.max() <= tokens):
        raise InputError(f"at: losses can be asked at more than 0 and at most {tokens} tokens")
    count = np.arange(len(_CUTS))
    grid = np.interp(np.arange(0, count[-1], 1 / FINE), count, _CUTS * plan.steps)
    edges = np.unique(np.concatenate([bounds, grid]))
    taken = np.diff(edges)
    # The LR may jump where the batch does, so it is evaluated just inside of each stretch.
    just = 1e-6 * taken
    inside = np.stack([edges[:-1] + just, edges[1:] - just])
    position = np.interp(inside, bounds, consumed)
    lr = np.asarray(rate(position) if callable(rate) else np.full(position.shape, rate), float)
    batches = batch[np.searchsorted(bounds, edges[:-1], side="right") - 1]
    segments = _segments(taken, lr[0], lr[1], batches)
    steps = np.interp(wanted, consumed, bounds)
    missing = np.full(len(wanted), np.nan)
    return Path(str(schedule), *segments, steps, wanted, missing)


@dataclass(frozen=True)
class Curves:
    """Paths padded to one shape: segments [R, G], points [R, N].

    Attributes:
        runs: names of the R runs.
        seq_len: tokens per sequence.
        segments, points: as the law takes them.
        tokens, loss, weight: [R, N]; weight is 0 for padding.
        measured: number of losses before curves were thinned.
        without_loss: runs that were left out, because they have no loss.
    """

    runs: tuple[str, ...]
    seq_len: int
    segments: Segments
    points: EvalPoints
    tokens: np.ndarray
    loss: np.ndarray
    weight: np.ndarray
    measured: int = 0
    without_loss: tuple[str, ...] = ()

    @property
    def budgets(self) -> np.ndarray:
        """Tokens of each run [R], with those after its last loss."""
        return (self.segments.steps * self.segments.batch).sum(axis=1) * self.seq_len

    @property
    def peak_lrs(self) -> np.ndarray:
        """The highest learning rate of each run [R]."""
        return np.where(self.segments.steps > 0, self.segments.lr, 0.0).max(axis=1)

    @property
    def last(self) -> np.ndarray:
        """Index of the last loss of each run [R]; of a run without one, of its last point."""
        used = self.weight > 0
        known = used & np.isfinite(self.loss)
        known = np.where(known.any(axis=1, keepdims=True), known, used)
        return known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)


def curves_of(
    runs: pd.DataFrame, *, warmup: int = 0, since: int = 0, every_row: bool = False
) -> Curves:
    """Return the curves of a run table.

    Args:
        runs: a run table with lr, or peak_lr if it is constant; without either the learning rate
            is 1. The held-out loss is used if there is one, else the training loss. A row without
            a loss gives the schedule alone.
        warmup: tokens of linear warm-up. Losses in it are left out, and losses at which the
            learning rate still rises from the start.
        since: tokens before which losses are left out as well.
        every_row: evaluate every row after step 0, with or without a loss, instead of at most
            READINGS losses per run.

    Raises:
        InputError: if `check_runs` refuses the table, sequence lengths or models are mixed, a
            learning rate is negative or never above 0, or no run has a loss.
    """
    runs = check_runs(runs, need_loss=False)
    refuse_mixed(runs, "runs", "seq_len", "model", "params")
    runs = runs.assign(lr=_learning_rates(runs), loss=runs[loss_column(runs)])
    seq_len = int(runs["seq_len"].iloc[0])
    measured = max(runs.loc[runs["loss"].notna(), "run"].nunique(), 1)
    fewest = 8  # losses of a run, see LOSSES
    most = None if every_row else max(fewest, min(READINGS, LOSSES // measured))
    by_run = runs.groupby("run", sort=False)
    paths = [run_path(rows, warmup, since, most) for _, rows in by_run]
    with_loss = [path for path in paths if len(path.at)]
    if not with_loss:
        later = f" and {format_tokens(since)} tokens" if since else ""
        raise InputError(f"runs: no losses after the warm-up{later}; lower them, or evaluate later")
    without = tuple(path.run for path in paths if not len(path.at))
    return replace(stack(with_loss, seq_len), without_loss=without)


def stack(paths: list[Path], seq_len: int) -> Curves:
    """Return paths padded to one shape, in multiples of 8 so that few programs are compiled."""

    def padded(rows: Sequence[np.ndarray], value: float) -> np.ndarray:
        width = math.ceil(max(map(len, rows)) / 8) * 8  # see above
        return np.array([np.pad(a, (0, width - len(a)), constant_values=value) for a in rows])

    def of(name: str, value: float) -> np.ndarray:
        return padded([getattr(path, name) for path in paths], value)

    segment, fraction = zip(*map(_located, paths), strict=True)
    return Curves(
        runs=tuple(p.run for p in paths),
        seq_len=seq_len,
        segments=Segments(of("steps", 0.0), of("lr", 1.0), of("batch", 1.0)),
        points=EvalPoints(padded(segment, 0.0), padded(fraction, 1.0)),
        tokens=of("tokens", np.nan),
        loss=of("loss", 1.0),
        weight=padded([np.ones(len(p.at)) for p in paths], 0.0),
        measured=sum(p.measured for p in paths),
    )


def unidentified_by_design(curves: Curves) -> dict[str, str]:
    """Return the parameters that these runs cannot identify, whatever their losses, and why.

    If η/B of a run never changes after its first loss, slowly forgotten noise is not
    distinguishable from noise that is forgotten at once with a slower signal. A run with fewer than
    three losses is compared with other runs, so its whole path after the warm-up is used (derived
    here).
    """
    steps, lr, batch = curves.segments
    used = steps > 0
    reasons = {}
    log_lr = np.log(np.maximum(lr, 1e-12))  # an LR of 0 has no logarithm
    log_batch = np.log(batch)
    constant = _spread(log_batch[used]) < VARIED
    if constant:
        reasons["m"] = "unidentified: one batch"
    # An LR below e^-5 of the peak, at the end of a decay, hardly constrains the exponent.
    steady = used & (log_lr > log_lr[used].max() - 5)
    if _spread(log_lr[steady]) < VARIED:
        reasons["p"] = "unidentified: one learning rate"
    # At a correlation of 0.99 what is left of the LR is a seventh of its standard deviation.
    elif _correlation(log_lr[steady], log_batch[steady]) > 0.99:
        reasons["p"] = "unidentified: the LR changes only with the batch"
    # Fewer batches, or closer ones, do not show how 1/sqrt(1 + B_phi/B) bends.
    if len(np.unique(batch[used])) < 3 or _spread(log_batch[used]) < 4:
        reasons["B_phi"] = "unidentified: fewer than three batches over a factor of four"
    peak = np.where(used, lr, 0.0).argmax(axis=1)
    few = curves.weight.sum(axis=1) < 3  # see above
    first = curves.points.segment[:, 0]
    first = np.where(few, np.minimum(peak, first), first)
    seen = used & (np.arange(steps.shape[1]) >= first[:, None])
    ratios = zip(log_lr - log_batch, seen, strict=True)
    if max(_spread(ratio[after]) for ratio, after in ratios) < VARIED:
        why = "unidentified: no run changes its batch or its LR after its first loss"
        if few.any():
            why += "; for runs with fewer than three losses, add rows with the earlier schedule"
        reasons |= dict.fromkeys(("c_K", "q", "A_1"), why)
    return reasons


def _spread(logs: np.ndarray) -> float:
    return float(np.exp(np.ptp(logs))) if logs.size else 1.0


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return the absolute correlation of two logs; of a quantity that does not vary it is 0."""
    if min(_spread(x), _spread(y)) < VARIED:
        return 0.0
    return abs(np.corrcoef(x, y)[0, 1])


def _learning_rates(runs: pd.DataFrame) -> np.ndarray:
    origin = Origin("runs")
    column = next((name for name in ("lr", "peak_lr") if name in runs), None)
    if column is None:
        return np.ones(len(runs))
    rates = numbers(runs, column, origin)
    for i in np.flatnonzero(rates < 0)[:1]:
        origin.refuse(i, f"{column} is {rates[i]}; write an LR of 0 or more")
    return rates


def _located(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the segment of each loss [N], and the fraction of the segment before it."""
    ends = np.cumsum(path.steps)
    rounding = 1e-12  # of the sum, by which an end may be above its loss
    segment = np.minimum(np.searchsorted(ends, path.at * (1 - rounding)), len(ends) - 1)
    fraction = 1 - (ends[segment] - path.at) / path.steps[segment]
    return segment.astype(float), np.clip(fraction, 0.0, 1.0)
