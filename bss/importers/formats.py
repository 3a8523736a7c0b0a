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
- `epoch`, for a note and a column if the data is read more than once; `nan`, for `finish`;
- `steps_per_second`, of which the reciprocal is `step_time`;
- `eval_loss_name`, the name under which `eval_loss` is printed, if there may be several: the first
  of a log is read, and the others are reported;
- `micro_step`, a count of micro-batches: it gives rows without a step theirs, by rows with both;
- `last_eval_loss`: a held-out loss that every row prints again until the next one is measured. It
  is read where it changes, unless lines of `evaluation` have held-out losses;
- in settings `seq_len`, `batch`, `batch_tokens`, `vocabulary`, `planned_steps`, `peak_lr` and
  `seed`, and factors of `products`.

A field `<loss=train loss|loss>` is a value after one of these names, anywhere in the rest of the
line: `loss: 3.2`, `Loss=3.2`, `"loss": 3.2`. `<lr?=lr>` may be missing.

Logs whose values have names are in `named.py`.
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
from bss.importers.lines import NOTHING, Lines, columns_of, number, words_of
from bss.importers.log import COLUMNS, COUNTS, LOSSES, AnyOf, Correction, Importer, Log, Rows, some
from bss.importers.named import EVENTS, Blocks, JsonEvents, Pairs
from bss.importers.names import (
    CORRECTIONS,
    HELD_OUT_ORDER,
    NAMES,
    declared,
    log_of,
    metric_names,
    unread_of,
    with_settings,
)
from bss.importers.table import LETTERS
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

GROUPS = (
    *COLUMNS, *UNITS, "index", "last_index", "estimate", "steps_per_second", "micro_step",
    "last_eval_loss", "nan", "eval_loss_name",
)  # fmt: skip
NEVER = "(?!)"
"""A regular expression that matches nothing."""

NAME = "eval_loss_name"
"""The group that is a text."""

HUMAN = ("rounded_tokens", "step_time_ms")
"""Groups of numbers that may have a suffix."""

SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}

FIELD = re.compile(r"<(\w+)(\??)=([^>]+)>")
"""A field of a declaration: a column, whether it may be missing, and its names."""
VALUE = r"[+-]?\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|[^\s,;|\"'(){}\[\]]+?"
"""A number, maybe with commas between thousands, or another text without separators."""

MOST_SHAPES = 2000
"""Forms of lines that are searched for names."""


class NamedValues:
    """Values of rows by the names that are printed before them, e.g. `val_ema_loss: 3.1`."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._names: set[str] = set()
        self._unread: dict[str, None] = {}
        self._shapes: set[str] = set()
        self._held_out: dict[str, None] = {}

    def chosen(self, match: re.Match[str] | None) -> dict[str, float]:
        """Return the values of a row that the user named, by column.

        Rows that differ only in digits have the same names, so one of them is looked at. Without
        a choice of the user, a held-out loss of another name than the log's first is NaN.

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
        other = self._of_another_set(match)
        if not self._columns:
            return other
        values = {_joined(found[1]): found[2] for found in _NAMED.finditer(match.string)}
        self._names |= values.keys()
        there = {ours: values.get(theirs) for ours, theirs in self._columns.items()}
        found = {ours: text for ours, text in there.items() if text is not None}
        missing = {ours: math.nan for ours in there if ours not in found}
        units = {ours: unit_of(ours, theirs) for ours, theirs in self._columns.items()}
        given = {ours: number(text) * units[ours] for ours, text in found.items()}
        return other | missing | given

    def _of_another_set(self, match: re.Match[str]) -> dict[str, float]:
        """Return a held-out loss of NaN for a row whose held-out loss is of another set."""
        if NAME not in match.re.groupindex:
            return {}
        name = _joined(match[NAME])
        self._held_out[name] = None
        first = next(iter(self._held_out))
        return {} if name == first else {"eval_loss": math.nan}

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if there are held-out losses of several names, of which the user chose none."""
        names = list(self._held_out)
        if len(names) < 2 or "eval_loss" in self._columns:
            return ()
        logged = f"the held-out loss read is {names[0]}, the first; others are {some(names[1:])}"
        return (f"{logged}; choose with --columns eval_loss=NAME",)

    def mention(self, text: str) -> None:
        """Note names of held-out losses in a line without a row, e.g. `Validation bpb: 1.2`."""
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
_NOT_AFTER = "".join(
    rf"(?<!{word}\s)(?<!{word.title()}\s)"
    for word in ("val", "valid", "ation", "eval", "test", "ema", "EMA", "avg", "aux", "moe", "mtp")
)
"""Words before a name that make it another one; `ation` ends validation and evaluation."""
_COUNTED = {*COUNTS, "micro_step"}
_NO_NUMBERS = {ord(letter): None for letter in "0123456789.,+- \t"}


def _joined(name: str) -> str:
    return " ".join(name.split())


def with_fields(expression: str) -> str:
    """Return a regular expression in which each field is replaced by its pattern.

    A name after another word is another name, e.g. the loss of `ema loss`.

    Examples:
        >>> row = re.compile(with_fields(r"^Update\\b<step=step><loss=loss><lr?=lr>"))
        >>> row.search("Update | ema loss: 2.9, loss: 3.2 | Step=1,024").groupdict()
        {'step': '1,024', 'loss': '3.2', 'lr': None}
    """

    def matched(field: re.Match[str]) -> str:
        column, optional, names = field.groups()
        either = "|".join(re.escape(name).replace(r"\ ", r"\s+") for name in names.split("|"))
        unit = {"step_time": "s?", "step_time_ms": "(?:ms)?"}.get(column, "")
        value = rf"(?P<{column}>{VALUE}){unit}(?=[\s,;|\"'(){{}}\[\]%]|$)"
        name = rf"(?i:{either})[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?"
        name = rf"(?<![\w./-])(?={name}){_NOT_AFTER}{name}"
        return f"(?=.*?{name}{value}{'|' if optional else ''})"

    return FIELD.sub(matched, expression)


@dataclass(frozen=True)
class LineFormat(Importer):
    """A format whose rows are lines.

    Attributes:
        about: What it reads, in one line.
        train: Regular expression of a line of training.
        evaluation: Regular expression of a line with a held-out loss; without a step, it belongs
            to the step before it.
        settings: Regular expressions of lines with settings; the first that gives one counts.
        products: Settings that are products of others, if all of these are there.
        epochs: Regular expression of a line that begins an epoch, the one of the rows after it.
        begins: The beginning of a row. A line with this beginning that is not a row is torn.
        ignored: Lines that begin like a row but are not rows.
        averaged: Lines with losses of averaged weights, which a note counts.
        known_by: What is searched in a file's head; `train` or `evaluation` by default.
        finish: Corrects the columns, including groups that are not columns of a Log.
        known: Names of values that look like a time or a step and need no note, joined by |.
    """

    about: str
    train: str
    evaluation: str = ""
    settings: tuple[str, ...] = ()
    products: Mapping[str, Sequence[str]] = field(default_factory=dict)
    epochs: str = ""
    begins: str = ""
    ignored: str = ""
    averaged: str = ""
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
        averaged: list[int] = []
        cells = columns_of(self._numbered(lines, settings, named, averaged))
        named.refuse_missing(file)
        estimated = {"loss": cells.numbers["estimate"]} if "estimate" in cells.numbers else {}
        rows = _with_steps(pd.DataFrame({**estimated, **cells.numbers}))
        rows, repeated = _where_it_changes(rows)
        rows = _with_epochs(rows, [one for one in settings if one.name == "epoch"])
        rows = self.finish(rows)
        told = f"{len(averaged)} lines have losses of averaged weights and are not read, first line"
        of_average = tuple(f"{told} {line}" for line in averaged[:1])
        notes = (*lines.alike.notes, *repeated, *named.notes, *of_average)
        unread = named.unread(self.known)
        log = log_of(file, rows, {}, notes, lines.cut, unread=unread)
        log = replace(log, left_out=lines.left_out)
        given = settings_of_attempts(settings, beginnings(log.rows), _one)
        for part, values in zip(parts_of(log), given, strict=True):
            yield with_settings(part, {**self._multiplied(values), **values})

    def _multiplied(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the settings that are products, of those whose factors are all known."""
        return {
            name: math.prod(values[factor] for factor in factors)
            for name, factors in self.products.items()
            if values.keys() >= {*factors}
        }

    def _numbered(
        self, lines: Lines, settings: list[Setting], named: NamedValues, averaged: list[int]
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the rows with their lines; what several ranks print one after another is one.

        The settings are added to `settings`, with the place of the expression that gives them, and
        the lines of averaged weights to `averaged`.
        """
        patterns = [re.compile(row) for row in self.rows]
        begins = re.compile(self.begins or NEVER)
        ignored = re.compile(self.ignored or NEVER)
        of_average = re.compile(self.averaged or NEVER)
        again = re.compile(re.sub(r"\\b|\^", "", self.begins or NEVER))
        expressions = [re.compile(setting) for setting in self.settings]
        expressions += [re.compile(self.epochs)] if self.epochs else []
        step = 0.0
        epoch = math.nan
        count = 0
        last: dict[str, float] = {}
        held: tuple[int, dict[str, float]] | None = None
        begins_with_held = False
        for line, text in lines:
            if of_average.search(text):
                averaged.append(line)
                continue
            if other := ignored.search(text):
                if again.search(text, other.end()):
                    lines.torn(line, "holds two lines")
                continue
            for order, expression in enumerate(expressions):
                settings += _settings(expression.search(text), count, order)
            match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
            if match is None and not begins.search(text):
                lines.alike.other(line, text)
                named.mention(text)
                continue
            try:
                row = _with_chosen(_row(match, again), named.chosen(match))
            except ValueError as error:
                lines.torn(line, str(error))
                continue
            lines.whole(match and match.re, text)
            if not row:
                continue
            without_step = not row.keys() & _COUNTED
            if without_step:
                later = epoch != row.get("epoch", epoch) and math.isfinite(epoch)
                row["step"] = math.nan if later else step
            epoch = row.get("epoch", math.nan)
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


def _with_chosen(row: dict[str, float], chosen: Mapping[str, float]) -> dict[str, float]:
    """Return a row with the values that were chosen, of which NaN is none.

    It is empty if its only loss is a held-out one that was not chosen.
    """
    if not chosen:
        return row
    there = {name: value for name, value in {**row, **chosen}.items() if not math.isnan(value)}
    not_chosen = math.isnan(chosen.get("eval_loss", 0.0))
    return {} if not_chosen and not there.keys() & {*LOSSES, "estimate"} else there


def _settings(given: re.Match[str] | None, row: int, order: int) -> Iterator[Setting]:
    """Yield the settings of a line; a value may be a product, e.g. 64*1024."""
    for name, value in (given.groupdict() if given else {}).items():
        if value is not None and len(value) < 40:
            factors = map(float, value.replace(",", "").split("*"))
            yield Setting(name, math.prod(factors), row, order)


def _with_steps(rows: Rows) -> Rows:
    """Return rows with steps for those that have only a count of micro-batches."""
    if not {"step", "micro_step"} <= {*rows}:
        return rows
    ratios = (rows["step"] / rows["micro_step"])[rows["step"] > 0].dropna().unique()
    if len(ratios) != 1:
        return rows
    steps = rows["micro_step"] * ratios[0]
    return rows.assign(step=rows["step"].fillna(steps.where(steps % 1 == 0)))


def _where_it_changes(rows: Rows) -> tuple[Rows, tuple[str, ...]]:
    """Return rows that have a repeated held-out loss only at its changes, and a note about it.

    Held-out losses on separate lines are exact, so that none is added to them.
    """
    if "last_eval_loss" not in rows or rows.filter(["eval_loss"]).notna().any(axis=None):
        return rows, ()
    last = rows["last_eval_loss"]
    new = last.notna() & (last != last.ffill().shift())
    note = "the held-out loss is printed again in every row, and read in the first row that has it"
    return rows.assign(eval_loss=last.where(new)), (note,) if new.any() else ()


def _with_epochs(rows: Rows, begun: Sequence[Setting]) -> Rows:
    """Return rows with the epoch of the line before them; in an attempt, the first are one less."""
    if not begun:
        return rows
    epochs = rows.get("epoch", pd.Series(math.nan, rows.index)).to_numpy(copy=True)
    starts = beginnings(rows)
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        here = [one for one in begun if start <= one.row < end]
        before = here[0].value - 1 if here else math.nan
        said = np.full(end - start, before)
        for one in here:
            said[one.row - start :] = one.value
        known = np.isfinite(epochs[start:end])
        epochs[start:end] = np.where(known, epochs[start:end], said)
    return rows.assign(epoch=epochs)


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
        if value is not None and name != NAME and value.lower() not in NOTHING:
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


def _importer(name: str, form: Mapping[str, Any]) -> Importer:
    """Return a form of a format as formats.toml declares it."""

    def joined(regex: str | list[str]) -> str:
        text = "".join(regex).replace("<prefix>", PREFIX).replace("<held_out>", HELD_OUT)
        return with_fields(text)

    given: dict[str, Any] = {part: value for part, value in form.items() if part != "sample"}
    for part in {*given} - {"settings", "products", "finish", "labels", "trainers"}:
        given[part] = joined(given[part])
    if "marker" in given:
        return JsonEvents(names=NAMES[name], values=EVENTS[name], **given)
    if "metric" in given:
        given["trainers"] = tuple(metric_names(name, trainer) for trainer in given["trainers"])
        return Blocks(**given)
    if "pair" in given:
        return Pairs(**given)
    given["settings"] = tuple(map(joined, given.get("settings", ())))
    given["finish"] = CORRECTIONS[given.get("finish", "as_logged")]
    return LineFormat(**given)


def declared_formats() -> dict[str, Importer]:
    """Return the importers of the text logs that formats.toml declares, by name."""
    formats: dict[str, Importer] = {}
    for name, declaration in declared("formats.toml").items():
        forms = tuple(_importer(name, form) for form in declaration.get("forms", ()))
        about = "; ".join(form.about for form in forms)
        if forms:
            formats[name] = forms[0] if len(forms) == 1 else AnyOf(about, forms)
    return formats


KNOWN = tuple(name for name in GROUPS if name not in ("estimate", "nan", NAME))
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
