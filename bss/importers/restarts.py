"""One row per step: repeats dropped, restarts merged, rows after divergence left out.

A run that restarts from a checkpoint logs some steps again. The last attempt at a step counts, and
what an abandoned attempt logged from there on goes. Rows out of order are sorted if every step
is logged once.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.log import COUNTS, LOSSES, Columns, Rows, present

MOST_RESTARTS = 0.1
"""A larger share of rows that go back is no restart: two processes write one log."""


KEPT = "kept"
NO_LOSS = "without a loss"
NO_COUNT = "without a step"
REPEATED = "repeat another row"
SUPERSEDED = "logged again by a later attempt"
DIVERGED = "after the loss diverged"
"""What becomes of a row."""


@dataclass(frozen=True)
class Merged:
    """One run's rows, one per step, and what became of every row that was read.

    Attributes:
        rows: in order of the count; columns as in a Log. Rows of one step are joined.
        fates: of each row that was read, in order: KEPT, or why it was left out.
        restarts: times that the log goes back.
        superseded: losses that a later attempt logged again, or that an abandoned one logged.
        duplicates: losses that repeat another one exactly.
        diverged_at: the count from which no loss is finite; those rows are left out.
    """

    rows: Columns
    fates: np.ndarray
    restarts: int = 0
    superseded: int = 0
    duplicates: int = 0
    diverged_at: int | None = None


@dataclass(frozen=True)
class _Attempts:
    """The rows of each loss, one per step, and the other fields as in `Merged`."""

    parts: list[Columns]
    fates: np.ndarray
    restarts: int
    superseded: int
    duplicates: int


def count_of(rows: Columns) -> str:
    """Return the column that counts the rows of a run; raise InputError if there is none."""
    for column in COUNTS:
        if column in rows and present(rows, column).any():
            return column
    raise InputError(
        "no step and no count of tokens is logged; name the metric with --columns step=NAME"
    )


def with_loss(rows: Rows) -> np.ndarray:
    """Return which rows have a loss."""
    found = np.zeros(len(rows), bool)
    for column in LOSSES:
        if column in rows:
            found |= present(rows, column)
    return found


def merge(*places: Rows) -> Merged:
    """Return one row for every step at which a loss was logged, different losses side by side.

    Args:
        places: Rows as in a Log, for each place with separate losses. Those of several files of one
            place are one after another.

    Raises:
        InputError: If losses or counts are missing or are counted differently, if a step goes back
            too often or to a step that was not logged, or if a loss is infinite.
    """
    logged = [with_loss(rows) for rows in places]
    if not all(there.any() for there in logged):
        raise InputError("no loss is logged; name the metric with --columns loss=NAME")
    tables = [_columns(rows) for rows in places]
    keys = {count_of(columns) for columns in tables}
    if len(keys) > 1:
        raise InputError(f"losses are logged by {' and '.join(sorted(keys))}; export them by one")
    key = keys.pop()
    attempts = [
        _last_attempts(columns, there, key) for columns, there in zip(tables, logged, strict=True)
    ]
    parts = [part for place in attempts for part in place.parts]
    whole, diverged_at = _finite(_aligned(parts, key), key)
    fates = np.concatenate([place.fates for place in attempts])
    if diverged_at is not None:
        counts = np.concatenate([columns[key] for columns in tables])
        fates[(fates == KEPT) & (counts >= diverged_at)] = DIVERGED
    return Merged(
        rows=whole,
        fates=fates,
        restarts=max(place.restarts for place in attempts),
        superseded=sum(place.superseded for place in attempts),
        duplicates=sum(place.duplicates for place in attempts),
        diverged_at=diverged_at,
    )


def _columns(rows: Rows) -> Columns:
    """Return the columns of rows; those of pandas' own types, e.g. text, as pandas has them."""
    return {
        str(name): column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array
        for name, column in rows.items()
    }


def _aligned(parts: list[Columns], key: str) -> Columns:
    """Return a row for each count of any part, in order, with the first value of several."""
    [first, *others] = parts
    if others or not _rising(first[key]):
        frames = [pd.DataFrame(part) for part in parts]
        return _columns(pd.concat(frames).groupby(key).first().reset_index())
    return {key: first[key], **first}


def _last_attempts(rows: Columns, logged: np.ndarray, key: str) -> _Attempts:
    """Return the rows that count, and what becomes of the others; `logged` ones have a loss."""
    there = logged & present(rows, key)
    fates = np.where(logged, np.where(there, KEPT, NO_COUNT), NO_LOSS).astype(object)
    rows = _taken(rows, np.flatnonzero(there))
    counts = rows[key]
    if not len(counts):
        raise InputError(f"no row has both a loss and {key}; log them together")
    if _rising(counts):
        return _Attempts([rows], fates, 0, 0, 0)
    counting = np.ones(len(counts), bool)
    repeated = np.zeros(len(counts), bool)
    places: dict[str, np.ndarray] = {}
    restarts = 0
    superseded = 0
    duplicates = 0
    for column in [column for column in LOSSES if column in rows]:
        place = np.flatnonzero(present(rows, column) & counting)
        if not _rising(counts[place]):
            distinct = _without_repeats(_of(rows, column), place, key)
            repeated[np.setdiff1d(place, distinct)] = True
            duplicates += len(place) - len(distinct)
            # A loss that is measured again when the run has ended restarts nothing.
            at = counts[distinct]
            again = len(at) > 1 and at[-1] == at[-2] and _rising(at[:-1])
            once = np.delete(distinct, -2) if again else distinct
            before = int(counting.sum())
            restarts = max(restarts, _supersede(counts, once, counting, key))
            superseded += before - int(counting.sum()) + len(distinct) - len(once)
            place = once
        places[column] = place
    kept = {loss: place[counting[place]] for loss, place in places.items()}
    left_out = np.ones(len(counts), bool)
    left_out[np.concatenate([*kept.values()])] = False
    why = np.where(repeated & counting, REPEATED, SUPERSEDED)
    fates[np.flatnonzero(there)[left_out]] = why[left_out]
    parts = [_taken(_of(rows, loss), place) for loss, place in kept.items()]
    return _Attempts(parts, fates, restarts, superseded, duplicates)


def _of(rows: Columns, loss: str) -> Columns:
    """Return the rows with one of the losses."""
    others = {*LOSSES} - {loss}
    return {name: values for name, values in rows.items() if name not in others}


def _taken(rows: Columns, place: np.ndarray) -> Columns:
    """Return the rows at some positions."""
    return {name: values[place] for name, values in rows.items()}


def _rising(counts: np.ndarray) -> bool:
    return bool((np.diff(counts) > 0).all())


def _without_repeats(rows: Columns, place: np.ndarray, key: str) -> np.ndarray:
    """Return the places without those whose row repeats an earlier one exactly.

    If steps are there twice with other values too, an attempt may log some that are equal by
    chance: then only those go after which the log continues as if they were not there.
    """
    rows = _taken(rows, place)
    new = ~pd.DataFrame(rows).duplicated().to_numpy()
    counts = rows[key]
    if len(np.unique(counts[new])) < new.sum():
        before = np.concatenate([[-np.inf], counts[:-1]])
        after = np.concatenate([counts[1:], [np.inf]])
        new |= (counts > before) | (after <= before)
    return place[new]


def _supersede(everywhere: np.ndarray, place: np.ndarray, counting: np.ndarray, key: str) -> int:
    """Clear `counting` for rows that later attempts supersede; return the number of attempts.

    Rows are superseded if a step occurs twice; else they are merely out of order.
    """
    counts = everywhere[place]
    if len(np.unique(counts)) == len(counts):
        return 0
    back = np.flatnonzero(np.diff(counts) <= 0) + 1
    if len(back) > max(1, MOST_RESTARTS * len(counts)):
        raise InputError(
            f"{key} goes back {len(back)} times in {len(counts)} rows, as where several "
            "processes write one log; give the lines of one"
        )
    for i in back:
        if counts[i] not in counts[:i][counting[place[:i]]]:
            raise InputError(
                f"{key} {counts[i]:.0f} follows {counts[i - 1]:.0f} and was not logged before, "
                "while others are there twice; sort the rows, or leave out the earlier attempt"
            )
        counting[: place[i]] &= everywhere[: place[i]] < counts[i]
    return len(back)


def _finite(rows: Columns, key: str) -> tuple[Columns, int | None]:
    """Return the rows before the losses stop being finite; refuse gaps between finite ones."""
    losses = {column: rows[column] for column in LOSSES if column in rows}
    bad = np.any([np.isinf(values) for values in losses.values()], axis=0)
    if not bad.any():
        return rows, None
    first = int(np.argmax(bad))
    at = int(rows[key][first])
    for column, values in losses.items():
        if np.isfinite(values[first:]).any():
            raise InputError(
                f"{column} is NaN or infinite at {key} {at} and finite later; correct it, or "
                "leave the row out"
            )
    if not first:
        raise InputError(f"no loss is finite from {key} {at} on; leave the run out")
    return {name: values[:first] for name, values in rows.items()}, at
