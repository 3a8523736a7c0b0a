"""Final losses of runs that had equal time, e.g. 600 seconds each, whatever tokens they trained on.

Only batch or batch_tokens, loss and the column of the cost are needed. The law needs steps as well,
or tokens and the sequence length.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.bracketed import loss_noise, repeat_squares
from bss.laws.final_loss.table import TABLE, settings_of
from bss.laws.minimum import FEWEST
from bss.points.copies import copied_rows
from bss.points.curve import loss_column
from bss.points.divergence import marked_diverged
from bss.points.groups import SEED_NOISE
from bss.tables.columns import Origin, as_numbers, need, positive, refuse_odd
from bss.tables.likeness import kind_of_name, words_of_name

EQUAL = 0.05  # in log seconds: contests stop a run at the end of a step or of an evaluation
LONG = {"hours": 3600.0, "hour": 3600.0, "hrs": 3600.0, "minutes": 60.0, "minute": 60.0,
        "mins": 60.0}  # fmt: skip
"""Seconds of a word that makes a column one of times."""
UNITS = LONG | {"h": 3600.0, "min": 60.0, "ms": 1e-3}
"""Seconds of a word in the name of a column of times."""
PER = {"step", "per", "iter", "iteration"}
"""Words of a time that is not the time of a run."""
SECONDS = "seconds"
SIZED = ("params", "seq_len", "steps", "tokens", "lr", "step_time")
OFF = 0.1  # in log: steps times the batch may differ so much from tokens, by a warm-up
LOSSES = ("loss", "eval_loss")


@dataclass(frozen=True)
class EqualRuns:
    """Runs of one model size that had equal cost.

    Attributes:
        cost: geometric mean, e.g. in seconds.
        params: of the model; NaN if the table lacks it.
        batch: [n] ascending, in sequences or tokens.
        loss: [n] in nats, means over repetitions at the best LR.
        count: [n], repetitions.
        steps: [n], geometric means; NaN if the table does not have them.
        seconds: [n], of the cost; NaN if it is no time.
    """

    cost: float
    params: float
    batch: np.ndarray
    loss: np.ndarray
    count: np.ndarray
    steps: np.ndarray
    seconds: np.ndarray


@dataclass(frozen=True)
class EqualTable:
    """The groups of equal cost of a table.

    Attributes:
        groups: with three batch sizes or more.
        column: of the cost.
        unit: of the batch sizes: "sequences" or "tokens".
        noise: standard deviation of one loss, in nats.
        contradiction: why step times are not used; empty if they are, or are unknown.
        warnings: what was left out.
    """

    groups: tuple[EqualRuns, ...]
    column: str
    unit: str
    noise: float
    contradiction: str
    warnings: tuple[str, ...]


def times_in(frame: pd.DataFrame) -> list[str]:
    """Return the columns that look like the time of a run, by their names."""
    names = [str(name) for name in frame if not words_of_name(str(name)) & PER]
    return [n for n in names if kind_of_name(n) == "step_time" or words_of_name(n) & {*LONG}]


def equal_hint(table: pd.DataFrame) -> str:
    """Return that rows have equal time but different tokens, and the option; else an empty text.

    Args:
        table: checked final losses.
    """
    for name in times_in(table):
        values = as_numbers(pd.Series(table[name])).astype(float)
        if not (np.isfinite(values) & (values > 0)).all():
            continue
        groups = table.assign(group=_equal_groups(values)).groupby(["params", "group"])
        for _, rows in groups:
            batches = rows["batch_tokens"].nunique()
            if batches >= FEWEST and np.ptp(np.log(rows["tokens"])) > EQUAL:
                return (
                    f"{name} is {np.median(values):.4g} in {len(rows)} rows of {batches} batch "
                    f"sizes with different tokens; --equal {name} finds the best batch in this time"
                )
    return ""


def check_equal(frame: pd.DataFrame, column: str, origin: Origin = TABLE) -> pd.DataFrame:
    """Check a table of final losses of runs of equal cost.

    Args:
        frame: columns loss (or eval_loss), batch or batch_tokens, and the cost. Optional: params,
            steps, tokens, seq_len, lr, step_time, and what marks diverged runs.
        column: of the cost. "seconds" is also read from another column of times, with its unit.
        origin: what to call the table and its rows in an error message.

    Returns:
        A new frame with the columns cost, size (batch in `unit`), unit and loss.

    Raises:
        InputError: If a column is missing, or a row is refused.
    """
    refuse_odd(frame, origin)
    if "lr" not in frame:
        frame = frame.rename(columns={"peak_lr": "lr"})
    if "steps" not in frame:
        frame = frame.rename(columns={"step": "steps"})
    if "loss" not in frame:
        frame = frame.rename(columns={"eval_loss": "loss"})
    need(frame, origin, "loss", ("batch", "batch_tokens"))
    name = _cost_column(frame, column, origin)
    checked = frame.copy()
    for sized in (n for n in SIZED if n in frame):
        checked[sized] = positive(frame, sized, origin)
    checked["cost"] = positive(frame, name, origin)
    if column == SECONDS:
        checked["cost"] *= seconds_of(name) or 1.0
    size = "batch" if "batch" in frame else "batch_tokens"
    checked["size"] = positive(frame, size, origin)
    checked["unit"] = "sequences" if size == "batch" else "tokens"
    losses = as_numbers(pd.Series(frame["loss"])).astype(float)
    for i in np.flatnonzero(losses <= 0)[:1]:
        origin.refuse(int(i), f"loss is {losses[i]:g}; write a positive number")
    return checked.assign(loss=losses)


def _cost_column(frame: pd.DataFrame, column: str, origin: Origin) -> str:
    """Return the table's column of the cost."""
    if column in frame:
        return column
    known = times_in(frame) if column == SECONDS else []
    if len(known) == 1:
        return known[0]
    if known:
        raise InputError(
            f"{origin.source}: no column {column}; {', '.join(known)} are times; name one of them, "
            f"--equal {known[0]}"
        )
    raise InputError(
        f"--equal {column}: {origin.source} has no such column; it has "
        f"{', '.join(map(str, frame.columns))}"
    )


def seconds_of(column: str) -> float | None:
    """Return the seconds of a column's unit; None if it is no time."""
    units = [UNITS[word] for word in words_of_name(column) if word in UNITS]
    is_time = kind_of_name(column) == "step_time" or bool(words_of_name(column) & {*LONG})
    return (units or [1.0])[0] if is_time else None


def last_losses(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per run of one batch size: its last loss, steps, tokens and further columns."""
    column = loss_column(runs)
    constant = runs.loc[runs.groupby("run")["batch"].transform("nunique") == 1]
    ends = constant.loc[constant[column].notna()].groupby("run", sort=False).tail(1)
    return ends.assign(loss=ends[column], steps=ends["step"]).drop(
        columns=[name for name in ("step", "lr", "eval_loss") if name in ends]
    )


def equal_table(table: pd.DataFrame, column: str) -> EqualTable:
    """Return the groups of equal cost of a table as `check_equal` returns it.

    Raises:
        InputError: If units of the batch are mixed, no row has a finite loss, or no group has three
            batch sizes.
    """
    if table["unit"].nunique() > 1:
        raise InputError("batch: some tables have it in sequences, others in tokens; choose one")
    finite = np.isfinite(table["loss"].to_numpy(float)) & ~marked_diverged(table)
    if not finite.any():
        raise InputError("loss: no row has a finite one; give final losses")
    cell = [n for n in ("params", "cost", "size", "lr", "steps", "tokens") if n in table]
    kept = table.loc[finite]
    copied, warnings = copied_rows(kept, cell, "loss", SEED_NOISE / kept["loss"].to_numpy(float))
    kept = kept.loc[~copied]
    if len(finite) > finite.sum():
        lost = f"{len(finite) - finite.sum()} rows without a finite loss, or marked as diverged"
        warnings = [f"{lost}: left out", *warnings]
    params = kept["params"] if "params" in kept else pd.Series(np.nan, kept.index)
    kept = kept.assign(model=params, group=_equal_groups(kept["cost"].to_numpy(float)))
    settings = _settings(kept, column)
    if settings:
        warnings.append(
            f"columns that vary and are not compared: {', '.join(settings)}; the lowest loss over "
            f"them is used; --keep {settings[0]}=VALUE answers for one"
        )
    found = []
    few = []
    for (model, _), rows in kept.groupby(["model", "group"], dropna=False):
        one = _group(rows, float(model), settings, seconds_of(column))
        (found if len(one.batch) >= FEWEST else few).append(one)
    if not found:
        most = max(len(one.batch) for one in few)
        raise InputError(
            f"{column}: at most {most} batch sizes have equal {column} (within {EQUAL:.0%}); the "
            f"best batch needs {FEWEST}"
        )
    if few:
        costs = ", ".join(f"{one.cost:.4g}" for one in few[:FEWEST])
        warnings.append(
            f"{column} {costs}: fewer than {FEWEST} batch sizes have the same: left out"
        )
    return EqualTable(
        tuple(found),
        column,
        str(kept["unit"].iloc[0]),
        _noise(kept, settings),
        _contradiction(kept),
        tuple(warnings),
    )


def _equal_groups(values: np.ndarray) -> np.ndarray:
    """Return labels [n] of values that are equal within EQUAL of the smallest of a group."""
    order = np.argsort(values)
    labels = np.empty(len(values), int)
    first = -np.inf
    label = -1
    for i in order:
        if np.log(values[i]) - first > EQUAL:
            first = np.log(values[i])
            label += 1
        labels[i] = label
    return labels


def _settings(table: pd.DataFrame, column: str) -> list[str]:
    """Return columns that differ between runs of equal cost and are no outcomes."""
    own = ["batch", "batch_tokens", "cost", "size", "unit", "model", "group", column, *SIZED]
    times = times_in(table)
    rest = table.drop(columns=[n for n in {*own, *times} if n in table])
    return settings_of(rest.assign(params=table["model"].fillna(0), tokens=table["group"]))


def _group(
    rows: pd.DataFrame, params: float, settings: list[str], seconds: float | None
) -> EqualRuns:
    """Return the runs of a group, each batch size at its best LR and setting."""
    steps = _steps(rows)
    key = [name for name in ("size", "lr", *settings) if name in rows]
    means = rows.assign(log_steps=np.log(steps)).groupby(key, dropna=False)
    each = means.agg(loss=("loss", "mean"), count=("loss", "size"), log_steps=("log_steps", "mean"))
    best = each.reset_index()
    best = best.loc[best.groupby("size")["loss"].idxmin()].sort_values("size")
    cost = float(np.exp(np.log(rows["cost"]).mean()))
    return EqualRuns(
        cost,
        params,
        best["size"].to_numpy(float),
        best["loss"].to_numpy(float),
        best["count"].to_numpy(float),
        np.exp(best["log_steps"].to_numpy(float)),
        np.full(len(best), np.nan if seconds is None else cost * seconds),
    )


def _steps(rows: pd.DataFrame) -> np.ndarray:
    """Return the steps of each row; NaN where they are unknown."""
    if "steps" in rows:
        return rows["steps"].to_numpy(float)
    length = rows.get("seq_len", pd.Series(np.nan, rows.index)).to_numpy(float)
    if rows["unit"].iloc[0] == "tokens":
        length = np.ones(len(rows))
    if "tokens" not in rows:
        return np.full(len(rows), np.nan)
    return rows["tokens"].to_numpy(float) / (rows["size"].to_numpy(float) * length)


def _noise(table: pd.DataFrame, settings: list[str]) -> float:
    """Return the standard deviation of a loss over repetitions; the usual one counts once."""
    names = ("model", "group", "size", "lr", *settings)
    repeated = table["loss"].groupby([table[n].astype(str) for n in names if n in table])
    return loss_noise(*repeat_squares(repeated))


def _contradiction(table: pd.DataFrame) -> str:
    """Return why steps and times contradict each other, or an empty text."""
    if {"steps", "step_time"} <= {*table}:
        off = np.abs(np.log(table["steps"] * table["step_time"] / table["cost"])).to_numpy(float)
        if off.max() > OFF:
            row = table.iloc[int(off.argmax())]
            return (
                f"steps times step_time is {row['steps'] * row['step_time']:.4g} at batch "
                f"{row['size']:g}, not {row['cost']:.4g}"
            )
    if {"steps", "tokens", "seq_len", "batch"} <= {*table}:
        taken = table["steps"] * table["batch"] * table["seq_len"]
        off = np.abs(np.log(taken / table["tokens"])).to_numpy(float)
        if off.max() > OFF:
            row = table.iloc[int(off.argmax())]
            return (
                f"steps times the batch is {taken.iloc[int(off.argmax())]:.4g} tokens at batch "
                f"{row['size']:g}, not {row['tokens']:.4g}"
            )
    return ""
