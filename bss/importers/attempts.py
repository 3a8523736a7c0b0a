"""Several attempts in one log: where it begins anew, and which of its parts are runs.

A log whose steps go back to its start begins anew: the job was started again, or several runs were
appended to one file. The earlier part is a run if it was finished, if its batch size, peak learning
rate or seed differs, or if the later part ends no further. Otherwise it is an attempt that was
abandoned. Steps that go back to a later step are of a run that resumed from a checkpoint
(`restarts.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.log import COUNTS, LOSSES, Columns, Correction, Log, Rows, present

SETTING = "setting "
"""Beginning of the names of columns that are only compared between the runs of a log."""
FEW = 0.1
"""Share of rows up to which the steps of two runs may go back if no step is there twice."""
SAME_RATE = 0.01
SAME_COUNT = 0.05
"""Relative differences in peak learning rates and in tokens by step of attempts at one run."""


@dataclass(frozen=True)
class Attempts:
    """The logs of one run.

    Attributes:
        logs: Its last attempt, continued from checkpoints in other logs or files.
        abandoned: Logs of each earlier attempt, which began at the start too.
    """

    logs: tuple[Log, ...]
    abandoned: tuple[tuple[Log, ...], ...] = ()

    @property
    def rows(self) -> Rows:
        """The rows of the last attempt, in order."""
        rows = [log.rows for log in self.logs]
        return pd.concat(rows, ignore_index=True) if len(rows) > 1 else rows[0]


def runs_of(logs: Iterable[Log]) -> list[Attempts]:
    """Return the runs that logs of one name and place hold, in their order."""
    runs: list[Attempts] = []
    for log in logs:
        for part in parts_of(log):
            if not runs:
                runs.append(Attempts((part,)))
                continue
            last = runs[-1]
            before = last.rows
            if not _begins_anew(before, part.rows) or _copied(last, before, part):
                runs[-1] = replace(last, logs=(*last.logs, part))
            elif _is_run(last, before, part):
                runs.append(Attempts((part,)))
            else:
                runs[-1] = Attempts((part,), (*last.abandoned, last.logs))
    return runs


def parts_of(log: Log) -> Iterator[Log]:
    """Yield the attempts of a log, each as a log; what ends the file belongs to the last one."""
    starts = beginnings(log.rows)
    if len(starts) == 1:
        yield log
        return
    ends = [*starts[1:], len(log.rows)]
    for start, end in zip(starts, ends, strict=True):
        part = replace(log, rows=log.rows.iloc[start:end])
        yield part if end == ends[-1] else replace(part, cut="", left_out={}, ended=False)


def beginnings(rows: Rows) -> list[int]:
    """Return the positions at which the rows of a log begin anew, 0 first.

    Rows without a count between two attempts belong to the second, whose settings they may be.
    """
    key = _count(rows)
    if key is None:
        return [0]
    counts = rows[key].to_numpy()
    place = _longest([np.flatnonzero(mask) for mask in _logged(rows, counts)])
    counted = np.flatnonzero(np.isfinite(counts))
    starts = [0]
    for at in _returns(counts[place]):
        between = counted[(counted >= place[at - 1]) & (counted <= place[at])]
        lowest = int(np.argmin(np.diff(counts[between])))
        starts.append(int(between[lowest]) + 1)
    return starts


def refuse_epochs(rows: Rows, source: str) -> None:
    """Refuse a count that begins anew at each epoch, so that its attempts are epochs of one run.

    Args:
        rows: Rows of a log; the column `epoch` may be there.
        source: Path of the log.

    Raises:
        InputError: If later epochs follow where the count begins anew.
    """
    if "epoch" not in rows:
        return
    epochs = rows["epoch"].to_numpy()
    for start in beginnings(rows)[1:]:
        before = epochs[:start][np.isfinite(epochs[:start])]
        after = epochs[start:][np.isfinite(epochs[start:])]
        if len(before) and len(after) and after.min() > before.max():
            raise InputError(
                f"{source}: {_count(rows)} begins anew at each epoch; name a count that goes on, "
                "with --columns step=NAME or tokens=NAME"
            )


def each_attempt(correction: Correction) -> Correction:
    """Return a correction that corrects every attempt of a log by its own rows."""

    def corrected(rows: Rows) -> Rows:
        starts = beginnings(rows)
        if len(starts) == 1:
            return correction(rows)
        ends = [*starts[1:], len(rows)]
        return pd.concat([correction(rows.iloc[a:b]) for a, b in zip(starts, ends, strict=True)])

    return corrected


@dataclass(frozen=True)
class Setting:
    """A setting that a log has in a line or an event.

    Attributes:
        name: Name of the setting.
        value: Its value.
        row: Number of rows before it.
        order: Of several expressions that give it, the first counts.
    """

    name: str
    value: float
    row: int
    order: int = 0


def settings_of_attempts(
    settings: Sequence[Setting], starts: Sequence[int], chosen: Callable[[Sequence[float]], float]
) -> list[dict[str, float]]:
    """Return the settings of each attempt: those printed with it, or else those before.

    Args:
        settings: All settings of a log.
        starts: The first row of each attempt.
        chosen: Returns the value of several that count; NaN if none does.
    """
    attempts: list[dict[str, float]] = []
    known: dict[str, float] = {}
    ends = [*starts[1:], np.inf]
    for start, end in zip(starts, ends, strict=True):
        first = start if attempts else -1
        here = [one for one in settings if first <= one.row < end]
        values: dict[str, float] = {}
        for name in dict.fromkeys(one.name for one in here):
            named = [one for one in here if one.name == name]
            order = min(one.order for one in named)
            values[name] = chosen([one.value for one in named if one.order == order])
        known = {name: v for name, v in {**known, **values}.items() if np.isfinite(v)}
        attempts.append(known)
    return attempts


def _count(rows: Rows) -> str | None:
    """Return the column that counts the rows; None if there is none."""
    return next((name for name in COUNTS if name in rows and present(rows, name).any()), None)


def _logged(rows: Rows | Columns, counts: np.ndarray) -> list[np.ndarray]:
    """Return which rows have each loss, and a count."""
    there = [present(rows, column) for column in LOSSES if column in rows]
    return [mask & np.isfinite(counts) for mask in there] or [np.zeros(len(rows), bool)]


def _longest(places: Sequence[np.ndarray]) -> np.ndarray:
    return max(places, key=len)


def _returns(counts: np.ndarray) -> list[int]:
    """Return the positions at which counts of one loss go back to where they began."""
    more = np.diff(counts)
    back = np.flatnonzero(more < 0) + 1
    twice = len(np.unique(counts)) < len(counts)
    if not twice and len(back) > FEW * len(counts):
        return []  # rows out of order
    again = np.flatnonzero(more == 0) + 1
    # A first row that is there twice was logged by two attempts, unless other rows are too.
    pieces = {0, *back.tolist(), *again.tolist()}
    single = all(i - 1 in pieces and i + 1 not in pieces for i in again)
    candidates = sorted({*back.tolist(), *(again.tolist() if single else [])})
    found: list[int] = []
    start = 0
    ends = [*candidates, len(counts)][1:]
    for at, end in zip(candidates, ends, strict=True):
        if _returned(counts[start:at], counts[at:end]):
            found.append(at)
            start = at
    return found


def _returned(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether counts go back to the start of those before, and over the same range.

    A log that is written at other distances may have its first row later.
    """
    if not len(before) or not len(after) or after.max() < before[0]:
        return False
    if after[0] <= before[0]:
        return True
    distance = _distance(after)
    return bool(distance != _distance(before) and 0 < after[0] <= distance)


def _distance(counts: np.ndarray) -> float:
    """Return the distance of the first two counts; 0 if there is one."""
    return float(counts[1] - counts[0]) if len(counts) > 1 else 0.0


def _begins_anew(before: Rows, after: Rows) -> bool:
    """Return whether rows of a later log begin at the start of those before."""
    key = _count(before)
    if key is None or key not in after:
        return False
    shared: list[tuple[np.ndarray, np.ndarray]] = []
    for column in LOSSES:
        if column in before and column in after:
            counts = [rows[key][rows[column].notna()].dropna() for rows in (before, after)]
            shared.append((counts[0].to_numpy(), counts[1].to_numpy()))
    both = max(shared, key=lambda pair: min(map(len, pair)), default=None)
    return both is not None and _returned(*both)


def _copied(last: Attempts, before: Rows, part: Log) -> bool:
    """Return whether a part repeats the rows of a run.

    A later checkpoint's file does, or a table that has the name of the run in each row.
    """
    if not part.labelled and part.source in {log.source for log in last.logs}:
        return False
    pairs = [_common(before, part.rows, loss) for loss in LOSSES]
    return any(map(len, pairs)) and all((pair["a"] == pair["b"]).all() for pair in pairs)


def _common(before: Rows, after: Rows, column: str) -> pd.DataFrame:
    """Return the values of a column at the counts at which both attempts have one: a and b."""
    key = _count(before)
    if key in (None, column) or not {key, column} <= {*before} & {*after}:
        return pd.DataFrame({"a": [], "b": []})
    values = [rows.dropna(subset=[key]).groupby(key)[column].last() for rows in (before, after)]
    return pd.DataFrame({"a": values[0], "b": values[1]}).dropna()


def _is_run(last: Attempts, before: Rows, part: Log) -> bool:
    """Return True if the rows before a part that begins anew are a separate run."""
    if last.logs[-1].ended or _differ(before, part.rows, last.logs[-1].labels, part.labels):
        return True
    planned = _values(before, "planned_steps")
    if planned.nunique() == 1 and "step" in before and finished(before, float(planned.iloc[-1])):
        return True
    key = _count(before)
    return key is not None and part.rows[key].max() <= before[key].max()


def finished(rows: Rows | Columns, planned: float) -> bool:
    """Return whether the last row is the last one that can be logged of a planned run."""
    steps = np.asarray(rows["step"])
    logged = [np.unique(steps[mask]) for mask in _logged(rows, steps)]
    longest = _longest(logged)
    distance = longest[-1] - longest[-2] if len(longest) > 1 else 0
    last = max(each[-1] for each in logged if len(each))
    return bool(last >= planned or last + distance > planned)


def _differ(
    before: Rows,
    after: Rows,
    labels: Mapping[str, float] | None,
    other_labels: Mapping[str, float] | None,
) -> bool:
    """Return whether two attempts have another batch, peak learning rate or seed."""
    ours = labels or {}
    theirs = other_labels or {}
    if any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys()):
        return True
    for column in before.columns.intersection(after.columns):
        ends = [_values(rows, column).unique().tolist() for rows in (before, after)]
        one_each = all(len(values) == 1 for values in ends)
        if column.startswith(SETTING) and one_each and ends[0] != ends[1]:
            return True
    for column in ("batch", "batch_tokens"):
        first = [_values(rows, column)[:1].tolist() for rows in (before, after)]
        if all(first) and first[0] != first[1]:
            return True
        pair = _common(before, after, column)
        if (pair["a"] != pair["b"]).any():
            return True
    for column in ("tokens", "samples"):
        pair = _common(before, after, column)
        if ((pair["a"] - pair["b"]).abs() > SAME_COUNT * pair["a"].abs()).any():
            return True
    peaks = _common(before, after, "lr").max()
    return bool(abs(peaks["a"] - peaks["b"]) > SAME_RATE * peaks.max())


def _values(rows: Rows, column: str) -> pd.Series:
    """Return the values of a column that may be missing."""
    return rows[column].dropna() if column in rows else pd.Series(dtype=float)
