"""Text logs whose values have names: blocks, lines of JSON, and lines of pairs.

- OLMo, OLMo-core and composer print a block after a line with the step, one line per metric.
- Levanter's JSON tracker (`tracker/json_logger.py`) writes a line with "tracker": "json_logger",
  "event": "log", "step" and "metrics" for each log, and the settings under "hparams".
- MLPerf's MLLOG (mlcommons/logging, `mllog/mllog.py`) writes `:::MLLOG {"key": ..., "value": ...,
  "metadata": {"samples_count": ...}}`. In language-model benchmarks `eval_accuracy` is a loss,
  which falls; in others it is an accuracy, which rises and is refused.
- clu's LoggingWriter writes a line with the step and pairs, `[100] loss=3.2, learning_rate=0.001`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.attempts import Setting, beginnings, parts_of, settings_of_attempts
from bss.importers.lines import CUT_OFF, NOTHING, Cells, Forms, Lines, columns_of, number
from bss.importers.log import COUNTS, Importer, Log
from bss.importers.names import MetricNames, named_log, plain_name, with_settings
from bss.importers.plain import LONG_METRICS, long_log
from bss.importers.table import JsonLines, flat
from bss.tables.likeness import kind_of_name

ENDED = "<ended>"
"""Name of a value that an event of the end of a run has."""


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
class Pairs(Importer):
    """Lines with a step and pairs of a name and a value, under the usual names.

    Attributes:
        about: What it reads, in one line.
        begins: Regular expression of what is before the pairs; its groups are `step`, and maybe
            `context`, which says whether the values are of training.
        pair: Regular expression of a pair; its groups are `name` and `value`.
        known_by: What is searched in a file's head.
    """

    about: str
    begins: str
    pair: str
    known_by: str

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has a line with a loss."""
        return re.search(self.known_by, head, re.MULTILINE) is not None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file.

        Raises:
            InputError: If all lines have one step, as where a number before a line is its rank's.
        """
        lines = Lines(file)
        texts: Counter[str] = Counter()
        forms = Forms()
        pairs = self._values(lines, texts, forms)
        values = pd.DataFrame(pairs, columns=["name", "step", "value"])
        if values["step"].nunique() < 2 <= values["name"].value_counts().max():
            raise InputError(
                f"{file}: every line has the step {values['step'][0]:g}, so the number before its "
                "values is no step; describe its lines with `bss import lines`"
            )
        given = {ours: plain_name(theirs) for ours, theirs in columns.items()}
        numbers = {*values["name"]}
        notes = tuple(
            f"{count} values of {name} are no numbers and not read"
            for name, count in texts.items()
            if count and name in numbers
        )
        notes += (*forms.notes, *lines.alike.notes)
        log = long_log(
            file, values, (LONG_METRICS,), given, notes=notes, cut=lines.cut, plain=plain_name
        )
        yield replace(log, left_out=lines.left_out)

    def _values(
        self, lines: Lines, texts: Counter[str], forms: Forms
    ) -> Iterator[tuple[str, float, float]]:
        """Yield names with steps and values; count texts in place of values, and note the forms."""
        begins = re.compile(self.begins)
        pair = re.compile(self.pair)
        for line, text in lines:
            begin = begins.search(text)
            if begin is None or begins.search(text, begin.end()):  # none, or two lines in one
                lines.alike.other(line, text)
                continue
            context = begin.groupdict().get("context")
            pairs = [
                (f"{context}/{found['name']}" if context else found["name"], found["value"])
                for found in pair.finditer(text, begin.end())
            ]
            worth = tuple(name for name, _ in pairs if kind_of_name(name))
            lines.whole(worth or None, text)
            forms.add(line, text, worth)
            for name, value in pairs:
                try:
                    yield name, number(begin["step"]), number(value)
                except ValueError:
                    texts[name] += value.lower() not in NOTHING


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
