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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.importers.build import log_of
from bss.importers.corrections import CORRECTIONS
from bss.importers.lines import Lines, columns_of, number
from bss.importers.log import COLUMNS, COUNTS, LOSSES, Correction, Importer, Log

PREFIX = r"^\s*(?:(?:\S+\s*[:|]|\S+Z)\s*)?"
"""The beginning of a line that may have a launcher's `[rank0]: `, `0: `, `name | ` or a time."""

UNITS = {
    "loss_bits": ("loss", math.log(2)),
    "eval_loss_bits": ("eval_loss", math.log(2)),
    "step_time_ms": ("step_time", 1e-3),
}
"""Groups in other units: their column, and what a value is multiplied by."""

GROUPS = (*COLUMNS, *UNITS, "index", "estimate", "epoch", "nan")
NEVER = "(?!)"
"""A regular expression that matches nothing."""

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
        lines, settings = Lines(file), dict[str, dict[int, set[int]]]()
        cells = columns_of(self._numbered(lines, settings))
        estimated = {"loss": cells.numbers["estimate"]} if "estimate" in cells.numbers else {}
        rows = self.finish(pd.DataFrame({**estimated, **cells.numbers}))
        without, notes = rows.filter(LOSSES).isna().all(axis=1).sum(), lines.alike.notes
        notes += (f"{without} rows have no loss",) if without else ()
        first = {name: places[min(places)] for name, places in settings.items()}
        one = {name: min(values) for name, values in first.items() if len(values) == 1}
        yield log_of(file, rows, one, notes, lines.cut)

    def _numbered(
        self, lines: Lines, settings: dict[str, dict[int, set[int]]]
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the rows with their lines; what several ranks print one after another is one.

        The values of each setting are added to `settings`, by the expression that gives them.
        """
        patterns = [re.compile(row) for row in self.rows]
        begins, ignored = (re.compile(p or NEVER) for p in (self.begins, self.ignored))
        again = re.compile(re.sub(r"\\b|\^", "", self.begins or NEVER))
        expressions = [re.compile(setting) for setting in self.settings]
        step, last = 0.0, {}
        for line, text in lines:
            if ignored.search(text):
                continue
            for place, expression in enumerate(expressions):
                given = expression.search(text)
                for name, value in (given.groupdict() if given else {}).items():
                    if value is not None and len(value) < 40:  # maybe a product, e.g. 64*1024
                        one = math.prod(map(int, value.replace(",", "").split("*")))
                        settings.setdefault(name, {}).setdefault(place, set()).add(one)
            match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
            if match is None and not begins.search(text):
                lines.alike.other(line, text)
                continue
            try:
                row = _row(match, again)
            except ValueError as error:
                lines.torn(line, str(error))
                continue
            lines.whole(match and match.re, text)
            if not row.keys() & set(COUNTS):
                row["step"] = step
            step = row.get("step", step)
            if row != last:
                yield line, row
            last = row


def _row(match: re.Match[str] | None, again: re.Pattern[str]) -> dict[str, float]:
    """Return the numbers of a line; raise ValueError with a reason if it is not one whole row."""
    if match is None:
        raise ValueError("is not a complete row")
    text, row = match.string, dict[str, float]()
    if again.search(text[: match.start()]) or again.search(text, match.end()):
        raise ValueError("holds two rows")
    for name, value in match.groupdict().items():
        if value is not None:
            suffix = SUFFIXES.get(value[-1:], 1.0) if name == "rounded_tokens" else 1.0
            column, unit = UNITS.get(name, (name, 1.0))
            try:
                row.setdefault(column, number(value if suffix == 1 else value[:-1]) * suffix * unit)
            except ValueError:
                raise ValueError(f"{name} is {value!r}; expected a number") from None
    if "index" in row:
        row["step"] = row.pop("index") + 1
    return row
