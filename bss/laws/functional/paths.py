"""One run as a path: pieces of constant rate and batch, and the losses read along them.

A table's row has the batch of the steps since the row before, and the rate of its last step:
between rows of one batch the rate is taken as linear, and in the warm-up as rising from 0. Curves
are thinned to about READINGS losses and PIECES pieces or a little more, which bounds the cost of
the law whatever the number of rows (derived here).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve

COLUMNS = ("step", "tokens", "batch", "loss", "lr")
READINGS = 32
PIECES = 48
DENSE = 4 * READINGS
FINE = 16  # stretches of a plan's rate to a piece
BREAK = 1e-4  # of the peak: what a rate leaves the line before by, where it has a corner
# Shares of a run's steps at which long pieces are cut, so that the signal is level on each; in a
# fit as in a prediction, because the one makes up for what the pieces of the other would miss.
_EARLY = np.concatenate([np.geomspace(1e-4, 1e-2, 6, endpoint=False), np.geomspace(1e-2, 0.1, 13)])
_CUTS = np.concatenate([[0.0], _EARLY, np.arange(6, PIECES + 1) / PIECES])


@dataclass(frozen=True)
class Path:
    """One run: steps [G] of constant rate and batch in order, and where losses were read.

    Attributes:
        run: its name.
        steps, lr, batch: [G], the batch in sequences.
        at: [N], steps at each loss.
        tokens, loss: [N], the loss in nats.
        measured: how many losses there were, of which N were picked or made.
    """

    run: str
    steps: np.ndarray
    lr: np.ndarray
    batch: np.ndarray
    at: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    measured: int = 0


def run_path(
    rows: pd.DataFrame, warmup: int, since: int, *, last: bool = False, readings: int = READINGS
) -> Path:
    """A run's rows as a path.

    Args:
        rows: of a checked run table, in order, with the rates as lr and as loss what is read; a
            row without it has the schedule alone.
        warmup, since: in tokens, as `bss.laws.functional.curves.curves_of` has them.
        last: read the last loss alone; the loss is NaN, at the end, where there is none.
        readings: about how many losses to read.

    Raises:
        InputError: the rate is never above 0.
    """
    name, seq_len = str(rows["run"].iloc[0]), int(rows["seq_len"].iloc[0])
    table = np.stack([rows[key].to_numpy(float) for key in COLUMNS])
    if table[0, 0] == 0:  # an evaluation before the first step
        table = table[:, 1:]
    if not (table.shape[1] and table[-1].max() > 0):
        raise InputError(f"run {name}: its rate is never above 0; correct lr, or leave it out")
    (step, tokens, batch, loss, lr), corner = _with_corner(table, warmup)
    rising = _rising(lr)
    readable = np.isfinite(loss) & (tokens > max(warmup, since)) & ~rising
    taken, sequences = np.diff(step, prepend=0.0), np.diff(tokens, prepend=0.0) / seq_len
    before = np.append(batch[:1], batch[:-1])
    lr_before = np.append(0.0 if warmup or rising[0] else lr[0], lr[:-1])
    mixed = np.abs(sequences - taken * batch) >= batch
    switched = mixed & (batch != before)
    # Steps and tokens between two rows tell how many steps were of either batch.
    of_new = (sequences - taken * before) / np.where(switched, batch - before, 1)
    new = np.clip(np.where(switched, of_new, taken), 0, taken)
    mean_batch = np.where(mixed & ~switched, sequences / np.maximum(taken, 1), batch)
    # The rate of a row's last step is that of the schedule half a step before.
    half = np.where((batch == before) & ~corner, lr - lr_before, 0) / (2 * np.maximum(taken, 1))
    begin = np.where(batch == before, lr_before + half, lr)
    begin[0] = lr_before[0]
    pairs = (taken - new, new), (lr_before, begin), (lr_before, lr + half), (before, mean_batch)
    pieces = _pieces(*(np.column_stack(pair).ravel() for pair in pairs))
    read = np.array([step, tokens, loss])
    if last:
        end = np.flatnonzero(np.isfinite(loss))[-1:] if np.isfinite(loss).any() else slice(-1, None)
        return Path(name, *pieces, *read[:, end])
    return Path(
        name, *pieces, *_thinned(read, batch, readable, readings), measured=int(readable.sum())
    )


def _with_corner(table: np.ndarray, warmup: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps, tokens, batches, losses and rates [5, rows], and a row where the warm-up ends.

    Also which row that is, [rows], if it was added.
    """
    step, tokens, batch, _, lr = table
    i, none = int(np.searchsorted(tokens, warmup)), np.zeros(len(step), bool)
    if not warmup or i == len(tokens) or tokens[i] == warmup or (i and batch[i] != batch[i - 1]):
        return table, none
    at = np.interp(warmup, np.append(0.0, tokens), np.append(0.0, step))
    corner = [at, warmup, batch[i], np.nan, lr[i]]
    return np.insert(table, i, corner, axis=1), np.insert(none, i, True)


def _rising(lr: np.ndarray) -> np.ndarray:
    """Rows of a warm-up: from the start, while the rate of the next row is higher."""
    grows = np.append(np.diff(lr) > 1e-9 * lr[1:], False)
    return np.cumprod(grows).astype(bool)


def _pieces(
    steps: np.ndarray, begin: np.ndarray, end: np.ndarray, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stretches [K] of a rate that is linear in steps, as pieces [G] of their mean rates.

    They are cut where they are long, and where the batch or the rate's line changes (but for too
    many changes, as at every row of a cosine).
    """
    used = steps > 0
    steps, begin, end, batch = steps[used], begin[used], end[used], batch[used]
    ends = np.cumsum(steps)
    total, peak = ends[-1], max(begin.max(), end.max())
    switched = np.diff(batch) != 0
    bent = np.diff((end - begin) / steps) * np.minimum(steps[1:], steps[:-1])
    bent = np.maximum(np.abs(bent), np.abs(begin[1:] - end[:-1])) > BREAK * peak
    most = (switched, PIECES), (bent, PIECES // 4)
    changes = [ends[:-1][some] for some, many in most if some.sum() < many]
    edges = np.unique(np.concatenate([_CUTS * total, *changes]))
    edges = np.append(edges[:-1][np.diff(edges) > 1e-9 * total], total)
    which = np.minimum(np.searchsorted(ends, edges, side="right"), len(ends) - 1)
    into = edges - (ends - steps)[which]
    slope = (end - begin)[which] / steps[which]
    rates = np.append(0.0, np.cumsum(steps * (begin + end) / 2))[which]
    rates += into * (begin[which] + slope * into / 2)
    sequences = np.append(0.0, np.cumsum(steps * batch))[which] + into * batch[which]
    taken = np.diff(edges)
    mean, first = np.diff(sequences) / taken, batch[which[:-1]]
    batches = np.where(np.isclose(mean, first, rtol=1e-9), first, mean)
    return taken, np.diff(rates) / taken, batches


def _groups(changes: np.ndarray) -> np.ndarray:
    """Labels [n], counted up from 0, of what lies between changes [n - 1]."""
    return np.concatenate([[0], np.cumsum(changes)])


def _thinned(read: np.ndarray, batch: np.ndarray, readable: np.ndarray, most: int) -> np.ndarray:
    """Steps, tokens and losses [3, rows] of at most about so many rows.

    Of many more rows, as a training loss at every step, each is the geometric mean of neighbours
    of one batch, which leaves a power law in place; else rows are picked.
    """
    rows = np.flatnonzero(readable)
    if len(rows) <= DENSE:
        picked = np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))
        rows = rows[picked[: len(rows)]]
        return read[:, rows]
    bins = np.arange(len(rows)) * most // len(rows)
    stage = _groups(np.diff(batch) != 0)[rows]
    few = stage[-1] - stage[0] < most
    group = _groups((np.diff(bins) != 0) | (few & (np.diff(stage) != 0)))
    count = np.bincount(group)
    return np.array([np.exp(np.bincount(group, np.log(x[rows])) / count) for x in read])


def plan_path(
    schedule: BatchSchedule,
    tokens: int,
    seq_len: int,
    rate: Callable[[Any], Any] | float,
    at: np.ndarray | None = None,
) -> Path:
    """The path of a schedule that is yet to be trained, as `bss.schedules.plan` resolves it.

    Args:
        schedule, tokens, seq_len, rate: as in `bss.laws.functional.values.predict`.
        at: [N] tokens at which losses will be asked; by default the end of the last step.
    """
    plan = resolve(schedule, tokens, seq_len)
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
    # A rate may jump where the batch does: it is asked just inside of each stretch.
    inside = np.stack([edges[:-1] + 1e-6 * taken, edges[1:] - 1e-6 * taken])
    position = np.interp(inside, bounds, consumed)
    lr = np.asarray(rate(position) if callable(rate) else np.full(position.shape, rate), float)
    batches = batch[np.searchsorted(bounds, edges[:-1], side="right") - 1]
    steps, missing = np.interp(wanted, consumed, bounds), np.full(len(wanted), np.nan)
    pieces = _pieces(taken, lr[0], lr[1], batches)
    return Path(str(schedule), *pieces, steps, wanted, missing)
