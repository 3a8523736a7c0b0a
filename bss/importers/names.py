"""Trainers by the names that they log, and their settings by name; logs from named columns.

names.toml declares the names.

Corrections give the columns of a trainer their meaning in a Log.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.lines import Cells, misspelt
from bss.importers.log import COLUMNS, COUNTS, LOSSES, Correction, Log, Rows, run_name, some


def as_logged(rows: Rows) -> Rows:
    """Return the rows unchanged: their step counts completed steps."""
    return rows


def completed(rows: Rows) -> Rows:
    """Return the rows of a trainer whose step is the index of the step just done, from 0 on."""
    return rows.assign(step=rows["step"] + 1) if "step" in rows else rows


def losses_completed(rows: Rows) -> Rows:
    """Return the rows with training losses one step on, and held-out ones as they are."""
    if not {"step", "loss"} <= {*rows}:
        return rows
    trained = completed(rows).drop(columns="eval_loss", errors="ignore")
    return pd.concat([trained, rows.drop(columns="loss")], ignore_index=True)


def falling(rows: Rows) -> Rows:
    """Return the rows; refuse a held-out value that rises, as an accuracy does."""
    values = rows.filter(["eval_loss"]).to_numpy()
    values = values[np.isfinite(values)]
    if len(values) > 1 and values[-1] > values[0] and values.max() <= 1:
        raise InputError("eval_accuracy rises, so it is an accuracy and no loss; leave the log out")
    return rows


def diverged(rows: Rows) -> Rows:
    """Return the rows, with an infinite loss in NaN iterations after the last finite loss."""
    losses = rows.filter(LOSSES)
    if "nan" not in rows or losses.empty:
        return rows
    finite = np.isfinite(losses).any(axis=1)
    lost = losses.isna().all(axis=1) & (rows["nan"] > 0) & ~finite[::-1].cummax()[::-1]
    return rows.assign(loss=np.where(lost, np.inf, rows.get("loss", np.nan)))


def batch_tokens(rows: Rows) -> Rows:
    """Return the rows with the tokens of a step, from the tokens and steps before it."""
    if not {"steps_before", "tokens_before"} <= {*rows}:
        return rows
    sizes = (rows["tokens_before"] / rows["steps_before"])[rows["steps_before"] > 0].unique()
    sizes = sizes[np.isfinite(sizes)]
    one = len(sizes) == 1 and sizes[0] % 1 == 0
    return rows.assign(batch_tokens=sizes[0]) if one else rows


CORRECTIONS: dict[str, Correction] = {
    function.__name__: function
    for function in (as_logged, completed, losses_completed, falling, diverged, batch_tokens)
}
"""Corrections by name."""


@dataclass(frozen=True)
class MetricNames:
    """The names that a trainer logs.

    Attributes:
        trainer: Name of the trainer.
        names: Names of each column of a Log, the first one present being used; `*` matches
            anything, and is used if it matches one metric.
        config: Paths, by dots, of settings for seq_len, batch, batch_tokens or vocabulary.
        corrected: Gives steps and tokens their meaning in a Log.
        marks: Names of which one must be present, if the others could be any trainer's.
        counts_logs: Whether W&B's step counts calls of log, because the trainer gives it none.
    """

    trainer: str
    names: Mapping[str, tuple[str, ...]]
    config: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    corrected: Correction = CORRECTIONS["as_logged"]
    marks: tuple[str, ...] = ()
    counts_logs: bool = False

    def named_in(self, available: Iterable[str]) -> dict[str, list[str]]:
        """Return the names that are present by column: one, or all that a pattern matches."""
        available = list(available)
        by_column: dict[str, list[str]] = {}
        if self.marks and not set(self.marks) & set(available):
            return by_column
        for column, names in self.names.items():
            for name in names:
                pattern = name.replace("[", "[[]")
                there = [a for a in available if a == name or fnmatchcase(a, pattern)]
                if there:
                    by_column[column] = there if "*" in name else there[:1]
                    break
        return by_column

    def settings(self, config: Mapping[str, Any]) -> dict[str, int]:
        """Return the settings of a config that are whole numbers."""
        settings: dict[str, int] = {}
        for column, paths in self.config.items():
            values = (at_path(config, path) for path in paths)
            value = next((value for value in values if value is not None), None)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and 1 <= value == value // 1:
                settings[column] = int(value)
        return settings


def at_path(config: Any, path: str) -> Any:
    """Return the value of a nested dict at a path of keys joined by dots; None if it has none."""
    for key in [path] if path in config else path.split("."):
        if not isinstance(config, Mapping):
            return None
        config = config.get(key)
        if isinstance(config, Mapping) and "value" in config and set(config) <= {"value", "desc"}:
            config = config["value"]
    return config


def choose(
    trainers: Iterable[MetricNames],
    available: Iterable[str],
    columns: Mapping[str, str],
    source: str,
) -> tuple[MetricNames, dict[str, str], tuple[str, ...]]:
    """Return the trainer that has most names of a log, and the name of every column.

    Args:
        trainers: Trainers, the likelier first.
        available: Names in the log.
        columns: Names that the user gave; they go first.
        source: Path of the log, for messages.

    Returns:
        The trainer, names by column, and notes: held-out losses of which none was chosen.

    Raises:
        InputError: If a name that the user gave is not present, or no loss is.
    """
    available = list(available)
    for ours, theirs in columns.items():
        if theirs not in available:
            raise InputError(f"{source}: no metric {theirs} for {ours}; it has {some(available)}")
    trainer = (fitting(trainers, available, columns) or [MetricNames("own", {})])[0]
    given = {column: [name] for column, name in columns.items()}
    names = {**trainer.named_in(available), **given}
    if not set(LOSSES) & set(names):
        raise InputError(
            f"{source}: no loss is known by its name; name it with --columns loss=NAME, "
            f"of {some(available)}"
        )
    several = {column: there for column, there in names.items() if len(there) > 1}
    notes = [
        f"{column} left out: {some(there)} are logged; choose with --columns {column}=NAME"
        for column, there in several.items()
    ]
    chosen = {c: there[0] for c, there in names.items() if c not in several}
    return trainer, chosen, tuple(notes)


def fitting(
    trainers: Iterable[MetricNames], available: Iterable[str], given: Iterable[str] = ()
) -> list[MetricNames]:
    """Return the trainers that have most names of a log, in their order; none without a loss.

    Args:
        trainers: Trainers.
        available: Names in the log.
        given: Columns that the user named.
    """
    available, given = list(available), set(given)
    own = [(trainer, set(trainer.named_in(available))) for trainer in trainers]
    named = [(trainer, names | given) for trainer, names in own if names]
    most = max((len(names) for _, names in named if set(LOSSES) & names), default=0)
    return [t for t, names in named if len(names) == most and set(LOSSES) & names]


EPOCH = {"epoch": ("epoch", "train/epoch")}
"""Names of the number of passes over the data, of every trainer."""


def declared(file: str) -> dict[str, Any]:
    """Return the declarations in a TOML file of this package."""
    return tomllib.loads((files("bss.importers") / file).read_text(encoding="utf-8"))


def metric_names(trainer: str, declaration: dict[str, Any]) -> MetricNames:
    """Return the names of a trainer as a declaration has them."""
    names, config = (
        {column: tuple("|".join([there] if isinstance(there, str) else there).split("|"))
         for column, there in declaration.get(part, {}).items()}
        for part in ("names", "config")
    )  # fmt: skip
    corrected = CORRECTIONS[declaration.get("corrected", "as_logged")]
    marks, counts = tuple(declaration.get("marks", ())), declaration.get("counts_logs", False)
    return MetricNames(trainer, {**EPOCH, **names}, config, corrected, marks, counts)


NAMES = {trainer: metric_names(trainer, d) for trainer, d in declared("names.toml").items()}
"""The names of each trainer, and of formats whose values have names."""

TRAINERS = tuple(n for n in NAMES.values() if n.trainer not in ("plain", "trainer_state", "mllog"))
"""Trainers that trackers know; the first of those that fit equally well is used."""


def log_of(
    file: Path,
    rows: Rows,
    settings: Mapping[str, int],
    notes: Iterable[str] = (),
    cut: str = "",
    run: str = "",
) -> Log:
    """Return the run of a file.

    Args:
        file: Path of the log.
        rows: Columns, some of COLUMNS, and `epoch` for a note; others are left out.
        settings: Its seq_len, vocabulary, and a batch or batch_tokens if no row has one.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        run: Name of the run in a file of several. Default: the file's name, or its directory's.

    Raises:
        InputError: If no row has a loss.
    """
    if not set(LOSSES) & set(rows):
        raise InputError(f"{file}: no line has a loss; give the log of the rank that prints it")
    columns = rows.filter(COLUMNS)
    if not {"batch", "batch_tokens"} & {*columns}:
        sizes = {"batch", "batch_tokens"} & settings.keys()
        columns = columns.assign(**{name: float(settings[name]) for name in sizes})
    length, vocabulary = settings.get("seq_len"), settings.get("vocabulary")
    source, place = str(file), f"{file}:{run}" if run else str(file)
    notes = (*notes, *_counted(rows))
    return Log(run or run_name(file), columns, source, place, length, notes, cut, vocabulary)


def named_log(
    file: Path,
    cells: Cells,
    trainers: tuple[MetricNames, ...],
    columns: Mapping[str, str],
    notes: Iterable[str] = (),
    cut: str = "",
    config: Mapping[str, Any] | None = None,
) -> Log:
    """Return the run of a file whose values have names.

    Args:
        file: Path of the log.
        cells: Its values by name.
        trainers: Trainers whose names they may be, the likelier first.
        columns: Names given by --columns.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        config: Its settings.

    Raises:
        InputError: If it has no loss of a known name, or a value is not a number.
    """
    sizes = cells.sizes
    trainer, chosen, more = choose(trainers, sizes, columns, str(file))
    more += misspelt(sizes, chosen.values())
    rows = trainer.corrected(cells.rows(chosen, file))
    return log_of(file, rows, trainer.settings(config or {}), (*more, *notes), cut)


def _counted(rows: Rows) -> Iterator[str]:
    """Yield the number of losses in rows without any count, and of epochs if there are several.

    Epochs that are whole numbers count from 0 or 1.
    """
    uncounted = rows[rows.filter(COUNTS).isna().all(axis=1)].filter(LOSSES)
    for column, lost in uncounted.notna().sum().items():
        if lost:
            yield f"{lost} values of {column} have no step and are left out"
    epochs = rows.filter(["epoch"]).to_numpy()
    epochs = epochs[np.isfinite(epochs) & (epochs >= 0)]
    if len(epochs):
        passes = epochs.max() - (0 if (epochs % 1).any() else epochs.min() - 1)
        if passes > 1.005:
            yield f"{passes:.3g} epochs over its data; repeated tokens are counted each time"
