"""One run as a path: pieces of constant rate and batch, and the losses read along them.

A table's row has the batch of the steps since the row before, and the rate of its last step:
between rows of one batch the rate is taken as linear. Curves are thinned to about READINGS losses
and PIECES pieces, which bounds the cost of the law whatever the number of rows (derived here).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.units import format_tokens

READINGS = 32
PIECES = 48
DENSE = 4 * READINGS
# Shares of a run's steps at which long pieces are cut, so that the signal is level on each.
_CUTS = np.concatenate([np.geomspace(1e-4, 1e-2, 7)[:-1], np.geomspace(1e-2, 1, 26)[:-1]])


@dataclass(frozen=True)
class Path:
    """One run: steps [G] of constant rate and batch in order, and where losses were read.

    Attributes:
        run: its name.
        steps, lr, batch: [G], the batch in sequences.
        at: [N], steps at each loss.
        tokens, loss: [N], the loss in nats.
    """

    run: str
    steps: np.ndarray
    lr: np.ndarray
    batch: np.ndarray
    at: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray


def run_path(
    name: str,
    rows: pd.DataFrame,
    lr: np.ndarray,
    column: str,
    seq_len: int,
    warmup: int,
    since: int = 0,
) -> Path:
    """A run's rows as a path.

    Args:
        name: of the run.
        rows: its rows of a checked run table, in order.
        lr: [rows], their rates.
        column: of the losses; where it has none, a row has the schedule alone.
        seq_len, warmup, since: in tokens, as `bss.laws.functional.curves.curves_of` has them.

    Raises:
        InputError: fewer than three losses are left, or the rate is never above 0.
    """
    step, tokens = rows["step"].to_numpy(float), rows["tokens"].to_numpy(float)
    batch, loss = rows["batch"].to_numpy(float), rows[column].to_numpy(float)
    if step[0] == 0:  # an evaluation before the first step
        step, tokens, batch, loss, lr = (x[1:] for x in (step, tokens, batch, loss, lr))
    kept = np.isfinite(loss) & (tokens > max(warmup, since)) & ~_rising(lr)
    if kept.sum() < 3 or not lr.max() > 0:
        raise InputError(
            f"run {name}: {kept.sum()} losses after its warm-up"
            f"{f' and {format_tokens(since)} tokens' if since else ''}; the law needs 3 of each "
            f"run, so evaluate more often{', lower since' if since else ''} or leave the run out"
        )
    taken, sequences = np.diff(step, prepend=0.0), np.diff(tokens, prepend=0.0) / seq_len
    before, lr_before = (np.concatenate([values[:1], values[:-1]]) for values in (batch, lr))
    mixed = np.abs(sequences - taken * batch) >= batch
    switched = mixed & (batch != before)
    # Steps and tokens between two rows tell how many steps were of either batch.
    new = np.where(
        switched, (sequences - taken * before) / np.where(switched, batch - before, 1), taken
    )
    new = np.clip(new, 0, taken)
    mean_batch = np.where(mixed & ~switched, sequences / np.maximum(taken, 1), batch)
    mean_lr = np.where(batch == before, (lr_before + lr) / 2, lr)
    mean_lr[0] *= 1 - min(warmup, tokens[0]) / (2 * tokens[0])
    steps, rates, batches = (
        np.column_stack(pair).ravel()
        for pair in ((taken - new, new), (lr_before, mean_lr), (before, mean_batch))
    )
    used = steps > 0
    pieces = _pieces(steps[used], rates[used], batches[used])
    return Path(name, *pieces, *_thinned(step, tokens, loss, batch, kept))


def _rising(lr: np.ndarray) -> np.ndarray:
    """Rows of a warm-up: from the start, while the rate of the next row is higher."""
    grows = np.append(np.diff(lr) > 1e-9 * lr[1:], False)
    return np.cumprod(grows).astype(bool)


def _pieces(
    taken: np.ndarray, lr: np.ndarray, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows merged where nothing changes, at most about PIECES, then cut where they are long."""
    switched = np.diff(batch) != 0
    group = _groups(switched | ~np.isclose(lr[1:], lr[:-1], rtol=1e-6))
    if group[-1] >= PIECES:
        blocks = group * PIECES // (group[-1] + 1)
        group = _groups((np.diff(blocks) != 0) | (switched & (switched.sum() < PIECES)))
    steps = np.bincount(group, taken)
    mean_lr = np.bincount(group, taken * lr) / steps
    mean_batch = np.bincount(group, taken * batch) / steps
    ends = np.cumsum(steps)
    edges = np.unique(np.concatenate([[0.0], ends, _CUTS * ends[-1]]))
    which = np.minimum(np.searchsorted(ends, edges[:-1], side="right"), len(ends) - 1)
    return np.diff(edges), mean_lr[which], mean_batch[which]


def _groups(changes: np.ndarray) -> np.ndarray:
    """Labels [n], counted up from 0, of what lies between changes [n - 1]."""
    return np.concatenate([[0], np.cumsum(changes)])


def _thinned(
    step: np.ndarray, tokens: np.ndarray, loss: np.ndarray, batch: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, tokens and losses of at most about READINGS rows.

    Of many more rows, as a training loss at every step, each is the geometric mean of neighbours
    of one batch, which leaves a power law in place; else rows are picked.
    """
    rows = np.flatnonzero(kept)
    if len(rows) <= DENSE:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, READINGS).round().astype(int))]
        return step[rows], tokens[rows], loss[rows]
    bins = np.arange(len(rows)) * READINGS // len(rows)
    stage = _groups(np.diff(batch) != 0)[rows]
    few = stage[-1] - stage[0] < READINGS
    group = _groups((np.diff(bins) != 0) | (few & (np.diff(stage) != 0)))
    count = np.bincount(group)
    step, tokens, loss = (
        np.exp(np.bincount(group, np.log(x[rows])) / count) for x in (step, tokens, loss)
    )
    return step, tokens, loss


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
    cuts = np.unique(np.concatenate([_CUTS, np.linspace(0, 1, PIECES + 1)[1:]])) * plan.steps
    edges = np.unique(np.concatenate([bounds, cuts]))
    middle = (edges[1:] + edges[:-1]) / 2
    position = np.interp(middle, bounds, consumed)
    lr = np.asarray(rate(position) if callable(rate) else np.full(len(position), rate), float)
    asked = consumed[-1:] if at is None else np.asarray(at, float)
    if not (asked.min() > 0 and asked.max() <= tokens):
        raise InputError(f"at: losses can be asked at more than 0 and at most {tokens} tokens")
    batches = batch[np.searchsorted(bounds, middle, side="right") - 1]
    steps, missing = np.interp(asked, consumed, bounds), np.full(len(asked), np.nan)
    return Path(str(schedule), np.diff(edges), lr, batches, steps, asked, missing)
