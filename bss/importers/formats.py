"""Text logs: one declaration per format in formats.toml; these classes read them.

`LineFormat` reads lines of training, of held-out losses and of settings. `OwnLines` are lines of
any trainer, described on the command line by regular expressions with named groups.

The named groups of a declaration's regular expressions are columns:

- `step` (steps completed) or `index` (of the step just done, from 0 on), `tokens`, `samples`;
- `loss`, `eval_loss` in nats per token, `loss_bits` and `eval_loss_bits` in bits per token;
- `step_time` in seconds per step, `step_time_ms` in milliseconds;
- `lr`, `batch` in sequences, `batch_tokens`, `rounded_tokens` (three digits, e.g. 1.31M);
- `planned_steps`, the step at which the run is to end, or `last_index`, the index of its last step;
- `estimate`: a training loss that counts if no line has `loss`;
- `epoch`, for a note if the data is read more than once; `nan`, for `finish`;
- in settings `seq_len`, `batch`, `batch_tokens`, `vocabulary` and `seed`.

`Blocks` and `JsonEvents` read logs with named values:

- OLMo, OLMo-core and composer print a block after a line with the step, one line per metric.
- Levanter's JSON tracker (`tracker/json_logger.py`) writes a line with "tracker": "json_logger",
  "event": "log", "step" and "metrics" for each log, and the settings under "hparams".
- MLPerf's MLLOG (mlcommons/logging, `mllog/mllog.py`) writes `:::MLLOG {"key": ..., "value": ...,
  "metadata": {"samples_count": ...}}`. In language-model benchmarks `eval_accuracy` is a loss,
  which falls; in others it is an accuracy, which rises and is refused.
"""

import math
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.attempts import Setting, beginnings, parts_of, settings_of_attempts
from bss.importers.lines import CUT_OFF, Cells, Lines, columns_of, number, words_of
from bss.importers.log import COLUMNS, COUNTS, AnyOf, Correction, Importer, Log, some
from bss.importers.names import (
    CORRECTIONS,
    HELD_OUT_ORDER,
    NAMES,
    MetricNames,
    declared,
    log_of,
    metric_names,
    named_log,
    unread_of,
    with_settings,
)
from bss.importers.table import LETTERS, JsonLines, flat
from bss.tables.likeness import held_out_name, unit_of

HELD_OUT = "(?:" + "|".join(HELD_OUT_ORDER) + ")"
"""A word of held-out data in the name of a loss."""

PREFIX = r"^\s*(?:(?:\S+\s*[:|]|\S+Z)\s*)?"
"""The beginning of a line that may have a launcher's `[rank0]: `, `0: `, `name | ` or a time."""

UNITS = {
    "loss_bits": ("loss", math.log(2)),
    "eval_loss_bits": ("eval_loss", math.log(2)),
    "step_time_ms": ("step_time", 1e-3),
}
"""Groups in other units: their column, and what a value is multiplied by."""

GROUPS = (*COLUMNS, *UNITS, "index", "last_index", "estimate", "epoch", "nan")
ENDED = "<ended>"
"""Name of a value that an event of the end of a run has."""
NEVER = "(?!)"
"""A regular expression that matches nothing."""

HUMAN = ("rounded_tokens", "step_time_ms")
"""Groups of numbers that may have a suffix."""

SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}


MOST_SHAPES = 2000
"""Forms of lines that are searched for names."""


class NamedValues:
    """Values of rows by the names that are printed before them, e.g. `val_ema_loss: 3.1`."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._names: set[str] = set()
        self._unread: dict[str, None] = {}
        self._shapes: set[str] = set()

    def chosen(self, match: re.Match[str] | None) -> dict[str, float]:
        """Return the values of a row that the user named, by column.

        Rows that differ only in digits have the same names, so one of them is looked at.

        Raises:
            ValueError: If a value is not a number.
        """
        if match is None:
            return {}
        shape = match.string.translate(_NO_NUMBERS)
        new = shape not in self._shapes
        if new:
            self._shapes.add(shape)
            self._note(match)
        if not self._columns:
            return {}
        values = {_joined(found[1]): found[2] for found in _NAMED.finditer(match.string)}
        self._names |= values.keys()
        there = {ours: values.get(theirs) for ours, theirs in self._columns.items()}
        found = {ours: text for ours, text in there.items() if text is not None}
        missing = {ours: math.nan for ours in there if ours not in found}
        units = {ours: unit_of(ours, theirs) for ours, theirs in self._columns.items()}
        return missing | {ours: number(text) * units[ours] for ours, text in found.items()}

    def mention(self, text: str) -> None:
        """Note names of held-out losses in a line that is no row, e.g. `Validation bpb: 1.2`."""
        shape = text.translate(_NO_NUMBERS)
        if shape in self._shapes or len(self._shapes) > MOST_SHAPES:
            return
        self._shapes.add(shape)
        for found in _NAMED.finditer(text[:LETTERS]):
            name = _joined(found[1])
            if held_out_name(name):
                self._unread[name] = None

    def _note(self, match: re.Match[str]) -> None:
        """Note the names of the values that no group of a row has."""
        read = {at for place in match.regs[1:] for at in range(*place)}
        for found in _NAMED.finditer(match.string):
            name = _joined(found[1])
            if found.start(2) not in read and name not in self._columns.values():
                self._unread[name] = None

    def unread(self, known: str) -> tuple[str, ...]:
        """Return names that look like a loss, a learning rate, a step or a time and are not read.

        Args:
            known: Names that need no note, joined by |.
        """
        return unread_of(self._unread, known.split("|"), self._columns)

    def refuse_missing(self, file: Path) -> None:
        """Refuse a name of --columns that no row has."""
        for ours, theirs in self._columns.items():
            if theirs not in self._names:
                has = some(sorted(self._names)) or "none"
                raise InputError(f"{file}: no value {theirs} for {ours}; its rows have {has}")


_NAMED = re.compile(
    r"(?<![\w.])([A-Za-z][\w/.()\[\]-]*(?: [A-Za-z][\w/.()\[\]-]*){0,4})[\"']?\s*[:=]?\s*[\"']?"
    r"([+-]?\d[\d.,]*(?:[eE][+-]?\d+)?|nan|inf|NaN)(?=m?s\b|[^\w./]|[.,](?:\s|$)|$)"
)
_NO_NUMBERS = {ord(letter): None for letter in "0123456789.,+- \t"}


def _joined(name: str) -> str:
    return " ".join(name.split())


@dataclass(frozen=True)
class LineFormat(Importer):
    """A format whose rows are lines.

    Attributes:
        about: What it reads, in one line.
        train: Regular expression of a line of training.
        evaluation: Regular expression of a line with a held-out loss; without a step, it belongs
            to the step before it.
        settings: Regular expressions of lines with settings; the first that gives one counts.
        begins: The beginning of a row. A line with this beginning that is not a row is torn.
        ignored: Lines that begin like a row but are not rows.
        known_by: What is searched in a file's head; `train` or `evaluation` by default.
        finish: Corrects the columns, including groups that are not columns of a Log.
        known: Names of values that look like a time or a step and need no note, joined by |.
    """

    about: str
    train: str
    evaluation: str = ""
    settings: tuple[str, ...] = ()
    begins: str = ""
    ignored: str = ""
    known_by: str = ""
    finish: Correction = CORRECTIONS["as_logged"]
    known: str = ""

    @property
    def rows(self) -> tuple[str, ...]:
        """The regular expressions of rows."""
        return tuple(filter(None, (self.train, self.evaluation)))

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has a row with its step."""
        counted = [row for row in self.rows if row is self.train or "<step>" in row]
        known = self.known_by or "|".join(re.sub(r"\?P<\w+>", "", row) for row in counted)
        return re.search(known, head, re.MULTILINE) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a file; --columns names values of rows, e.g. `val_ema_loss: 3.1`."""
        lines = Lines(file)
        settings: list[Setting] = []
        named = NamedValues(columns)
        cells = columns_of(self._numbered(lines, settings, named))
        named.refuse_missing(file)
        estimated = {"loss": cells.numbers["estimate"]} if "estimate" in cells.numbers else {}
        rows = self.finish(pd.DataFrame({**estimated, **cells.numbers}))
        unread = named.unread(self.known)
        log = log_of(file, rows, {}, lines.alike.notes, lines.cut, unread=unread)
        log = replace(log, left_out=lines.left_out)
        given = settings_of_attempts(settings, beginnings(log.rows), _one)
        for part, values in zip(parts_of(log), given, strict=True):
            yield with_settings(part, values)

    def _numbered(
        self, lines: Lines, settings: list[Setting], named: NamedValues
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the rows with their lines; what several ranks print one after another is one.

        The settings are added to `settings`, with the place of the expression that gives them.
        """
        patterns = [re.compile(row) for row in self.rows]
        begins = re.compile(self.begins or NEVER)
        ignored = re.compile(self.ignored or NEVER)
        again = re.compile(re.sub(r"\\b|\^", "", self.begins or NEVER))
        expressions = [re.compile(setting) for setting in self.settings]
        step = 0.0
        count = 0
        last: dict[str, float] = {}
        held: tuple[int, dict[str, float]] | None = None
        begins_with_held = False
        for line, text in lines:
            if ignored.search(text):
                continue
            for order, expression in enumerate(expressions):
                settings += _settings(expression.search(text), count, order)
            match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
            if match is None and not begins.search(text):
                lines.alike.other(line, text)
                named.mention(text)
                continue
            try:
                row = {**_row(match, again), **named.chosen(match)}
            except ValueError as error:
                lines.torn(line, str(error))
                continue
            lines.whole(match and match.re, text)
            without_step = not row.keys() & set(COUNTS)
            if without_step:
                row["step"] = step
            if row == last:
                lines.again += 1
                continue
            last = row
            begins_with_held = begins_with_held or (without_step and not count)
            count += 1
            if held is not None:
                # A log that begins with a held-out loss begins anew with one too.
                anew = begins_with_held and row.get("step", step) < step
                yield (held[0], {**held[1], "step": 0.0}) if anew else held
            step = row.get("step", step)
            held = (line, row) if without_step else None
            if held is None:
                yield line, row
        if held is not None:
            yield held


def _settings(given: re.Match[str] | None, row: int, order: int) -> Iterator[Setting]:
    """Yield the settings of a line; a value may be a product, e.g. 64*1024."""
    for name, value in (given.groupdict() if given else {}).items():
        if value is not None and len(value) < 40:
            number = math.prod(map(int, value.replace(",", "").split("*")))
            yield Setting(name, number, row, order)


def _one(values: Sequence[float]) -> float:
    """Return the value that all are; NaN if they contradict each other."""
    return values[0] if len(set(values)) == 1 else math.nan


def _row(match: re.Match[str] | None, again: re.Pattern[str]) -> dict[str, float]:
    """Return the numbers of a line; raise ValueError with a reason if it is not one whole row."""
    if match is None:
        raise ValueError("is not a complete row")
    text = match.string
    row = dict[str, float]()
    if again.search(text[: match.start()]) or again.search(text, match.end()):
        raise ValueError("holds two rows")
    for name, value in match.groupdict().items():
        if value is not None:
            suffix = SUFFIXES.get(value[-1:], 1.0) if name in HUMAN else 1.0
            column, unit = UNITS.get(name, (name, 1.0))
            try:
                row.setdefault(column, number(value if suffix == 1 else value[:-1]) * suffix * unit)
            except ValueError:
                raise ValueError(f"{name} is {value!r}; expected a number") from None
    if "index" in row:
        row["step"] = row.pop("index") + 1
    if "last_index" in row:
        row["planned_steps"] = row.pop("last_index") + 1
    return row


@dataclass(frozen=True)
class Blocks(Importer):
    """A console that prints a block of metrics after each step.

    Attributes:
        about: What it reads, in one line.
        begins: Regular expression of a block's first line; its groups are `step` and `epoch`.
        metric: Regular expression of a metric's line; its groups are `name` and `value`.
        known_by: What is searched in a file's head.
        trainers: Names of the metrics.
    """

    about: str
    begins: str
    metric: str
    known_by: str
    trainers: tuple[MetricNames, ...]

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has a block."""
        return re.search(self.known_by, head, re.MULTILINE) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file; a last block that lacks what all others have is cut off."""
        lines = Lines(file)
        cells = columns_of(self._blocks(lines))
        log = named_log(file, cells, self.trainers, columns, cut=lines.cut)
        rows = log.rows
        cut = log.cut
        notes = (*log.notes, *lines.alike.notes)
        lost = rows[:-1].isna().sum().drop("eval_loss", errors="ignore").max()
        if lost:
            notes += (f"{lost} blocks lack what others have",)
        if (rows.iloc[-1].isna() & rows[:-1].notna().all()).any():
            rows = rows[:-1]
            cut = cut or "is cut off in its last block; the blocks before it are read"
        left_out = {**lines.left_out, **({CUT_OFF: 1} if cut else {})}
        yield replace(log, rows=rows, cut=cut, notes=notes, left_out=left_out)

    def _blocks(self, lines: Lines) -> Iterator[tuple[int, dict[str, str]]]:
        begins = re.compile(self.begins)
        metric = re.compile(self.metric)
        losses = {name for trainer in self.trainers for name in trainer.names["loss"]}
        begun = 0
        block = {}
        for line, text in lines:
            if begin := begins.search(text):
                if begun:
                    yield begun, block
                lines.whole("block", text)
                begun = line
                block = {name: value for name, value in begin.groupdict().items() if value}
            elif begun and (found := metric.search(text)):
                name = found["name"]
                value = found["value"]
                lines.alike.row(name, text)
                if block.setdefault(name, value) != value:
                    lines.torn(line, f"repeats {name} within a block")
            elif begun:
                lines.alike.other(line, text)
            elif (found := metric.search(text)) and found["name"] in losses:
                lines.alike.lines.append(line)  # its block's first line is damaged
        if begun:
            yield begun, block


@dataclass(frozen=True)
class JsonEvents(Importer):
    """Lines with a marker and a JSON object, each some values of the log or of its settings.

    Attributes:
        about: What it reads, in one line.
        marker: Text of the lines that are read.
        names: Names of the values.
        values: Returns the values of an event by name; none if it is not one.
        labels: Columns of one value for the whole run, by the names of settings.
    """

    about: str
    marker: str
    names: MetricNames
    values: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    labels: Mapping[str, str] = field(default_factory=dict)

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has the marker."""
        return self.marker in head

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file."""
        table = JsonLines(file, self.marker, self.values)
        cells = table.cells
        log = named_log(file, cells, (self.names,), columns, notes=table.notes, cut=table.cut)
        log = replace(log, left_out=table.left_out)
        settings = list(self._settings(cells))
        given = settings_of_attempts(settings, beginnings(log.rows), lambda values: values[-1])
        stops = np.flatnonzero(np.isfinite(cells.numbers.get(ENDED, np.zeros(0))))
        parts = list(parts_of(log))
        first = [int(part.rows.filter(COUNTS).dropna(how="all").index[0]) for part in parts]
        ends = [*first[1:], len(log.rows)]
        for part, config, begin, end in zip(parts, given, first, ends, strict=True):
            labels = {o: config[theirs] for o, theirs in self.labels.items() if theirs in config}
            ended = bool(((stops > begin) & (stops < end)).any())
            log = with_settings(part, self.names.settings(config))
            yield replace(log, labels=labels, ended=ended)

    def _settings(self, cells: Cells) -> Iterator[Setting]:
        """Yield the settings among the values."""
        paths = {path for paths in self.names.config.values() for path in paths}
        for name, values in cells.numbers.items():
            path = name.replace("/", ".")
            if path in paths or path in self.labels.values():
                for row in np.flatnonzero(np.isfinite(values)):
                    yield Setting(path, float(values[row]), int(row))


def _levanter(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metrics of an event with its step, or the settings."""
    if not {"step", "metrics"} <= event.keys():
        return flat(event.get("hparams") or {})
    return {**flat(event["metrics"] or {}), "global_step": event["step"]}


def _mllog(event: Mapping[str, Any]) -> Mapping[str, Any]:
    if not {"key", "value"} <= event.keys():
        return {}
    if event["key"] == "run_stop":
        return {ENDED: 1}
    value = event["value"]
    metadata = event.get("metadata") or {}
    values = value if isinstance(value, Mapping) else {str(event["key"]): value}
    return {**values, **metadata}


EVENTS = {"levanter": _levanter, "mllog": _mllog}
"""The values of an event by name, by format."""


def _importer(name: str, declaration: Mapping[str, Any]) -> Importer:
    """Return a format as a table of formats.toml has it."""

    def joined(regex: str | list[str]) -> str:
        return "".join(regex).replace("<prefix>", PREFIX).replace("<held_out>", HELD_OUT)

    given: dict[str, Any] = dict(declaration)
    for part in {*given} - {"settings", "finish", "labels", "trainers"}:
        given[part] = joined(given[part])
    if "marker" in given:
        return JsonEvents(names=NAMES[name], values=EVENTS[name], **given)
    if "metric" in given:
        given["trainers"] = tuple(metric_names(name, trainer) for trainer in given["trainers"])
        return Blocks(**given)
    given["settings"] = tuple(map(joined, given.get("settings", ())))
    given["finish"] = CORRECTIONS[given.get("finish", "as_logged")]
    return LineFormat(**given)


def declared_formats() -> dict[str, Importer]:
    """Return the importers that formats.toml declares, by name."""
    formats: dict[str, Importer] = {}
    for name, declarations in declared("formats.toml").items():
        versions = tuple(_importer(name, declaration) for declaration in declarations)
        about = "; ".join(version.about for version in versions)
        formats[name] = versions[0] if len(versions) == 1 else AnyOf(about, versions)
    return formats


KNOWN = tuple(name for name in GROUPS if name not in ("estimate", "nan"))
NEAR = 2000
"""Number of lines that are compared with a regular expression that matches none."""
PATIENCE = 5.0
PATIENCE_PER_LINE = 1e-3
"""Seconds that an expression of the user may take in a file, and in each of its lines."""


@dataclass(frozen=True)
class OwnLines(LineFormat):
    """Lines that the user describes; every file is taken to have them."""

    options: Mapping[str, str] = field(default_factory=dict)

    def recognises(self, file: Path, head: str) -> bool:
        """Return True: the user chose this format."""
        return True

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file.

        Raises:
            InputError: If a regular expression matches no line; with the line nearest to it.
        """
        lines = [(line, text) for line, text in Lines(file) if text.strip()]
        for option, regex in self.options.items():
            if not _any_match(lines, f"{option} {regex!r}", re.compile(regex), file):
                words = words_of(regex)
                near = lines[:NEAR] or [(0, "")]
                line, text = max(near, key=lambda one: len(words & words_of(one[1])))
                nearest = f"the nearest is line {line}: {text[:200]!r}"
                raise InputError(f"{option} {regex!r}: matches no line of {file}; {nearest}")
        yield from super().read(file, columns)


def _any_match(
    lines: Sequence[tuple[int, str]], option: str, pattern: re.Pattern[str], file: Path
) -> bool:
    """Return whether an expression matches a line; all lines are tried.

    Raises:
        InputError: If that takes too long, as it does for repetitions of repetitions.
    """
    tried = [0]

    def give_up() -> InputError:
        return InputError(
            f"{option}: takes too long in line {tried[-1]} of {file}, as (a+)+ does; write it "
            "without repetitions of repetitions"
        )

    matches = False
    with limited(PATIENCE + PATIENCE_PER_LINE * len(lines), give_up):
        for line, text in lines:
            tried[:] = [line]
            matches = pattern.search(text) is not None or matches
    return matches


@contextmanager
def limited(seconds: float, error: Callable[[], Exception]) -> Iterator[None]:
    """Raise an error after seconds of computing; without a limit outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise error()

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def own_lines(train: str, evaluation: str) -> OwnLines:
    """Return the importer of lines with these regular expressions.

    Args:
        train: Regular expression of a line of training; may be empty if `evaluation` is not.
        evaluation: Regular expression of a line with a held-out loss, or nothing.

    Raises:
        InputError: If neither is given, or one is not a regular expression, lacks a required group
            or has an unknown group.
    """
    given = {"--train-line": (train, "loss"), "--eval-line": (evaluation, "eval_loss")}
    options = {option: regex for option, (regex, _) in given.items() if regex}
    if not options:
        example = r"'step (?P<step>\d+) loss (?P<loss>\S+)'"
        raise InputError(f"--train-line: the format lines needs one, e.g. {example}")
    groups: set[str] = set()
    for option, regex in options.items():
        loss = given[option][1]
        here = _groups(option, regex)
        if not {loss, f"{loss}_bits"} & here:
            raise InputError(f"{option} {regex!r}: has no group {loss}; write (?P<{loss}>\\S+)")
        groups |= here
    if not groups & {*COUNTS, "index"}:
        option, regex = next(iter(options.items()))
        why = r"has no group step, index, tokens or samples; write (?P<step>\d+)"
        raise InputError(f"{option} {regex!r}: {why}")
    return OwnLines("lines by --train-line, --eval-line", train, evaluation, options=options)


def _groups(option: str, regex: str) -> set[str]:
    """Return the named groups of a regular expression."""
    try:
        groups = set(re.compile(regex).groupindex)
    except re.error as error:
        raise InputError(f"{option} {regex!r}: {error}; correct it") from None
    for name in groups - set(KNOWN):
        raise InputError(f"{option}: group {name} is unknown; known are {', '.join(KNOWN)}")
    return groups
