"""MetricNames of trainers by the names that they log to a tracker, and their settings by theirs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from bss.errors import InputError
from bss.importers.log import LOSSES, Rows


def as_logged(rows: Rows) -> Rows:
    """The rows, of a trainer that counts completed steps."""
    return rows


def completed(rows: Rows) -> Rows:
    """The rows of a trainer whose step is the index of the one just done, from 0 on."""
    return {**rows, "step": rows["step"] + 1} if "step" in rows else rows


@dataclass(frozen=True)
class MetricNames:
    """What a trainer calls what it logs.

    Attributes:
        trainer: its name.
        names: its names of a column of a Log, the first that is there being meant; `*` stands for
            anything, and means one metric or none.
        config: paths, by dots, of a run's settings that say seq_len, batch or batch_tokens.
        per_device: settings that are batches of a device: never taken for the global one.
        twins: a tag logged by step, and its twin of the same values whose step is another count,
            by the count's column.
        corrected: the rows with steps and tokens as a Log means them.
        marks: names of which one must be there, where the others may be anyone's.
        counts_logs: whether W&B's own step counts its logs, because it gives W&B none.
        notes: what is to be known of its losses.
    """

    trainer: str
    names: Mapping[str, tuple[str, ...]]
    config: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    per_device: tuple[str, ...] = ()
    twins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    corrected: Callable[[Rows], Rows] = as_logged
    marks: tuple[str, ...] = ()
    counts_logs: bool = False
    notes: tuple[str, ...] = ()

    def named_in(self, available: Iterable[str]) -> dict[str, list[str]]:
        """The names that are there, by column: one, or all that a pattern matches."""
        available = list(available)
        by_column: dict[str, list[str]] = {}
        if self.marks and not set(self.marks) & set(available):
            return by_column
        for column, names in self.names.items():
            for name in names:
                there = [a for a in available if a == name or ("*" in name and _like(a, name))]
                if there:
                    by_column[column] = there
                    break
        return by_column

    def settings(self, config: Mapping[str, Any]) -> tuple[dict[str, int], tuple[str, ...]]:
        """seq_len, batch and batch_tokens of a config, where they are whole, and notes."""
        settings: dict[str, int] = {}
        for column, paths in self.config.items():
            values = [value for path in paths if (value := at_path(config, path)) is not None]
            if values and type(values[0]) is int and values[0] > 0:
                settings[column] = values[0]
        notes = tuple(
            f"{path} {value} is the batch of a device"
            for path in self.per_device
            if (value := at_path(config, path)) is not None
        )
        return settings, notes


def _like(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def at_path(config: Any, path: str) -> Any:
    """The value of a nested dict at a path of keys joined by dots; None where there is none."""
    for key in path.split("."):
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
    """The trainer whose names a log has most of, and the name of every column.

    Args:
        trainers: those it may be, the likelier first.
        available: names of the log.
        columns: names that the user gave; they go first.
        source: of the log, for messages.

    Returns:
        The trainer, names by column, and notes: held-out losses of which none was chosen.

    Raises:
        InputError: a name that the user gave is not there, or no loss is.
    """
    available = list(available)
    for ours, theirs in columns.items():
        if theirs not in available:
            raise InputError(f"{source}: no metric {theirs} for {ours}; it has {_some(available)}")
    own = MetricNames("own", {ours: (theirs,) for ours, theirs in columns.items()})
    alike = fitting(trainers, available, columns) or [own]
    trainer = alike[0]
    names = {column: [name] for column, name in columns.items()}
    names = {**trainer.named_in(available), **names}
    if not set(LOSSES) & set(names):
        raise InputError(
            f"{source}: no loss is known by its name; name it with --columns loss=NAME, "
            f"of {_some(available)}"
        )
    several = {column: there for column, there in names.items() if len(there) > 1}
    notes = [
        f"{column} left out: {_some(there)} are logged; choose with --columns {column}=NAME"
        for column, there in several.items()
    ]
    notes += [
        f"read as {trainer.trainer}'s; steps of {other.trainer}, which has these names too, "
        "count from 0: name the format"
        for other in alike
        if other.corrected is not trainer.corrected and not other.marks
    ]
    chosen = {c: there[0] for c, there in names.items() if c not in several}
    return trainer, chosen, (*notes, *trainer.notes)


def fitting(
    trainers: Iterable[MetricNames], available: Iterable[str], given: Iterable[str] = ()
) -> list[MetricNames]:
    """The trainers whose names a log has most of, equals in their order; none without a loss.

    `given` are the columns that the user named, a loss among them or not.
    """
    available, given = list(available), set(given)
    own = [(trainer, set(trainer.named_in(available))) for trainer in trainers]
    names_of = [(trainer, names | given) for trainer, names in own if names]
    most = max((len(names) for _, names in names_of if set(LOSSES) & names), default=0)
    return [t for t, names in names_of if len(names) == most and set(LOSSES) & names]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
