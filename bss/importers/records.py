"""Logs with named values: blocks on a console, and JSON events after a marker.

- OLMo, OLMo-core and composer print a block after a line with the step, one line per metric.
- Levanter's JSON tracker (`tracker/json_logger.py`) writes a line with "tracker": "json_logger",
  "event": "log", "step" and "metrics" for each log, and the settings under "hparams".
- MLPerf's MLLOG (mlcommons/logging, `mllog/mllog.py`) writes `:::MLLOG {"key": ..., "value": ...,
  "metadata": {"samples_count": ...}}`. In language-model benchmarks `eval_accuracy` is a loss,
  which falls; in others it is an accuracy, which rises and is refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bss.importers.build import named_log
from bss.importers.lines import Lines, columns_of
from bss.importers.log import Importer, Log
from bss.importers.names import MetricNames
from bss.importers.table import JsonLines, flat


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
        rows, cut, notes = log.rows, log.cut, (*log.notes, *lines.alike.notes)
        lost = rows[:-1].isna().sum().drop("eval_loss", errors="ignore").max()
        if lost:
            notes += (f"{lost} blocks lack what others have",)
        if (rows.iloc[-1].isna() & rows[:-1].notna().all()).any():
            rows = rows[:-1]
            cut = cut or "is cut off in its last block; the blocks before it are read"
        yield replace(log, rows=rows, cut=cut, notes=notes)

    def _blocks(self, lines: Lines) -> Iterator[tuple[int, dict[str, str]]]:
        begins, metric = re.compile(self.begins), re.compile(self.metric)
        losses = {name for trainer in self.trainers for name in trainer.names["loss"]}
        begun, block = 0, {}
        for line, text in lines:
            if begin := begins.search(text):
                if begun:
                    yield begun, block
                lines.whole("block", text)
                begun = line
                block = {name: value for name, value in begin.groupdict().items() if value}
            elif begun and (found := metric.search(text)):
                name, value = found["name"], found["value"]
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
        cells, told = table.cells, {"notes": table.notes, "cut": table.cut}
        found = {name: values[np.isfinite(values)] for name, values in cells.numbers.items()}
        config = {name.replace("/", "."): v[-1].item() for name, v in found.items() if len(v)}
        log = named_log(file, cells, (self.names,), columns, config=config, **told)
        labels = {ours: config[theirs] for ours, theirs in self.labels.items() if theirs in config}
        yield replace(log, labels=labels)


def _levanter(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metrics of an event with its step, or the settings."""
    if not {"step", "metrics"} <= event.keys():
        return flat(event.get("hparams") or {})
    return {**flat(event["metrics"] or {}), "global_step": event["step"]}


def _mllog(event: Mapping[str, Any]) -> Mapping[str, Any]:
    if not {"key", "value"} <= event.keys():
        return {}
    value, metadata = event["value"], event.get("metadata") or {}
    values = value if isinstance(value, Mapping) else {str(event["key"]): value}
    return {**values, **metadata}


EVENTS = {"levanter": _levanter, "mllog": _mllog}
"""The values of an event by name, by format."""
