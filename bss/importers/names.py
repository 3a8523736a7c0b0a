"""Trainers by the names that they log, and their settings by name; names.toml declares them."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

from bss.errors import InputError
from bss.importers.corrections import CORRECTIONS
from bss.importers.log import LOSSES, Correction, some


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
    own = MetricNames("own", {ours: (theirs,) for ours, theirs in columns.items()})
    trainer = (fitting(trainers, available, columns) or [own])[0]
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
