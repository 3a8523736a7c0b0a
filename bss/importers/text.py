"""Text logs: one declaration per format, of its training line, held-out line and settings.

The named groups of a declaration's regular expressions are columns:

- `step` (steps completed) or `index` (of the step just done, from 0 on), `tokens`, `samples`;
- `loss`, `eval_loss` in nats per token, `loss_bits` and `eval_loss_bits` in bits per token;
- `step_time` in seconds per step, `step_time_ms` in milliseconds;
- `lr`, `batch` in sequences, `batch_tokens`, `rounded_tokens` (three digits, e.g. 1.31M);
- `estimate`: a training loss that counts if no line has `loss`;
- `epoch`, for a note if the data is read more than once; `nan`, for `finish`;
- in settings `seq_len`, `batch`, `batch_tokens` and `vocabulary`.

formats.toml has the declarations of the trainers that are known.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.corrections import CORRECTIONS
from bss.importers.lines import Alike, Lines, columns_of, epochs, number
from bss.importers.log import (
    COLUMNS,
    COUNTS,
    LOSSES,
    AnyOf,
    Correction,
    Importer,
    Log,
    Rows,
    run_name,
)
from bss.importers.names import declared

PREFIX = r"^\s*(?:(?:\S+\s*[:|]|\S+Z)\s*)?"
"""The beginning of a line that may have a launcher's `[rank0]: `, `0: `, `name | ` or a time."""

GROUPS = (
    *(*COLUMNS, "index", "loss_bits", "eval_loss_bits", "estimate", "epoch", "nan"),
    "step_time_ms",
)
SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}


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
    """

    about: str
    train: str
    evaluation: str = ""
    settings: tuple[str, ...] = ()
    begins: str = ""
    ignored: str = ""
    known_by: str = ""
    finish: Correction = CORRECTIONS["as_logged"]

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
        """Yield the run of a file."""
        if columns:
            raise InputError(
                f"{file}: --columns names columns of tables and metrics of trackers; lines of "
                "this format have none; leave it out"
            )
        lines, seen = Lines(file), _Seen()
        cells = columns_of(self._numbered(lines, seen))
        rows, notes = self.finish(_losses(cells.numbers)), seen.alike.notes
        without = int(np.all([np.isnan(rows[c]) for c in LOSSES if c in rows], axis=0).sum())
        notes += (f"{without} rows have no loss",) if without else ()
        yield log_of(file, rows, seen.settings, notes, lines.cut)

    def _numbered(self, lines: Lines, seen: "_Seen") -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the rows with their lines; what several ranks print one after another is one."""
        patterns = [re.compile(row) for row in self.rows]
        begins, ignored = (re.compile(p) if p else None for p in (self.begins, self.ignored))
        again = re.compile(re.sub(r"\\b|\^", "", self.begins)) if self.begins else None
        settings = [re.compile(setting) for setting in self.settings]
        step, last = 0.0, {}
        for line, text in lines:
            if ignored and ignored.search(text):
                continue
            for place, setting in enumerate(settings):
                if found := setting.search(text):
                    seen.set(place, found)
            match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
            if match is None:
                if begins and begins.search(text):
                    lines.torn(line, "is not a complete row")
                else:
                    seen.alike.other(line, text)
                continue
            if again and (again.search(text[: match.start()]) or again.search(text, match.end())):
                lines.torn(line, "holds two rows")
                continue
            try:
                row = _row(match)
            except ValueError as error:
                lines.torn(line, str(error))
                continue
            lines.whole()
            seen.alike.row(match.re, text)
            if not row.keys() & set(COUNTS):
                row["step"] = step
            step = row.get("step", step)
            if row != last:
                yield line, row
            last = row


class _Seen:
    """The settings of a log, and lines that resemble rows."""

    def __init__(self):
        self.values: dict[str, dict[int, set[int]]] = {}
        self.alike = Alike()

    def set(self, place: int, match: re.Match[str]) -> None:
        """Note the settings of a line; one may be a product, e.g. 64*1024."""
        for name, text in match.groupdict().items():
            if text is not None and len(text) < 40:
                value = math.prod(map(int, text.replace(",", "").split("*")))
                self.values.setdefault(name, {}).setdefault(place, set()).add(value)

    @property
    def settings(self) -> dict[str, int]:
        """The settings that have one value."""
        first = {name: places[min(places)] for name, places in self.values.items()}
        return {name: min(values) for name, values in first.items() if len(values) == 1}


def _row(match: re.Match[str]) -> dict[str, float]:
    """Return the numbers of a line; raise ValueError with a reason if one is none."""
    row: dict[str, float] = {}
    for name, text in match.groupdict().items():
        if text is not None:
            scale = SUFFIXES.get(text[-1:], 1.0) if name == "rounded_tokens" else 1.0
            try:
                row[name] = number(text if scale == 1 else text[:-1]) * scale
            except ValueError:
                raise ValueError(f"{name} is {text!r}; expected a number") from None
    if "index" in row:
        row["step"] = row.pop("index") + 1
    return row


def _losses(columns: Rows) -> Rows:
    """Return the columns in nats and seconds; an estimate is a training loss if no other is."""
    rows = dict(columns)
    for name in LOSSES:
        if (bits := rows.pop(f"{name}_bits", None)) is not None:
            nats = bits * math.log(2)
            rows[name] = np.where(np.isnan(rows[name]), nats, rows[name]) if name in rows else nats
    estimate = rows.pop("estimate", None)
    if estimate is not None:
        rows.setdefault("loss", estimate)
    if (milliseconds := rows.pop("step_time_ms", None)) is not None:
        rows["step_time"] = milliseconds / 1000
    return rows


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
    columns = {name: rows[name] for name in COLUMNS if name in rows}
    if not {"batch", "batch_tokens"} & columns.keys():
        count = len(next(iter(columns.values())))
        for name in {"batch", "batch_tokens"} & settings.keys():
            columns[name] = np.full(count, float(settings[name]))
    length, vocabulary = settings.get("seq_len"), settings.get("vocabulary")
    source, place = str(file), f"{file}:{run}" if run else str(file)
    notes = (*notes, *epochs(rows.get("epoch", ())))
    return Log(run or run_name(file), columns, source, place, length, notes, cut, vocabulary)


def _line_format(declaration: Mapping[str, Any]) -> LineFormat:
    """Return a format as a table of formats.toml has it."""

    def joined(regex: str | list[str]) -> str:
        return "".join(regex).replace("<prefix>", PREFIX)

    others = ("about", "settings", "finish")
    regexes = {name: joined(regex) for name, regex in declaration.items() if name not in others}
    return LineFormat(
        declaration["about"],
        settings=tuple(map(joined, declaration.get("settings", ()))),
        finish=CORRECTIONS[declaration.get("finish", "as_logged")],
        **regexes,
    )


def text_formats() -> dict[str, Importer]:
    """Return the importers that formats.toml declares, by name."""
    formats: dict[str, Importer] = {}
    for name, declarations in declared("formats.toml").items():
        versions = tuple(map(_line_format, declarations))
        about = "; ".join(version.about for version in versions)
        formats[name] = versions[0] if len(versions) == 1 else AnyOf(about, versions)
    return formats
