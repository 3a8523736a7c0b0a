"""Logs with named values: blocks on a console, and JSON events after a marker.

- OLMo (allenai/OLMo, `olmo/train.py`: log_metrics_to_console) and OLMo-core
  (`callbacks/console_logger.py`, commit 00e2b7b) print a block after `[step=10/1000,epoch=1]`, one
  line `    NAME=VALUE` per metric. OLMo prints held-out losses after the block of their step;
  OLMo-core prints them without a step and under other names, so they are not read. A console
  rounds the learning rate to four decimals, so it is not read either.
- composer (`composer/loggers/console_logger.py`) prints a block after `[batch=10/50]:`, completed
  batches, one line `Train NAME: VALUE` per metric. `time/token` and `time/batch` are of before
  the batch; their ratio is the batch in tokens.
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

from bss.importers.corrections import CORRECTIONS
from bss.importers.lines import Alike, Cells, Lines, columns_of, misspelt
from bss.importers.log import Importer, Log
from bss.importers.names import NAMES, MetricNames, choose
from bss.importers.table import flat, json_of
from bss.importers.text import log_of


def named_log(
    file: Path,
    cells: Cells,
    trainers: tuple[MetricNames, ...],
    columns: Mapping[str, str],
    cut: str = "",
    config: Mapping[str, Any] | None = None,
) -> Log:
    """Return the run of a file whose values have names.

    Args:
        file: Path of the log.
        cells: Its values by name.
        trainers: Trainers whose names they may be, the likelier first.
        columns: Names given by --columns.
        cut: Why the end of the log is missing.
        config: Its settings.

    Raises:
        InputError: If it has no loss of a known name, or a value is not a number.
    """
    sizes = cells.sizes
    trainer, chosen, notes = choose(trainers, sizes, columns, str(file))
    notes += misspelt(sizes, chosen.values())
    rows = {column: cells.column(name, file) for column, name in chosen.items()}
    return log_of(file, trainer.corrected(rows), trainer.settings(config or {}), notes, cut)


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
        lines, alike = Lines(file), Alike()
        cells = columns_of(self._blocks(lines, alike))
        log = named_log(file, cells, self.trainers, columns, lines.cut)
        rows = dict(log.rows)
        lost = [int(np.isnan(v[:-1]).sum()) for c, v in rows.items() if c != "eval_loss"]
        notes = log.notes
        if any(lost):
            notes += (f"{max(lost)} blocks lack what others have",)
        lacking = [not np.isnan(v[:-1]).any() and np.isnan(v[-1]) for v in rows.values()]
        cut = log.cut
        if any(lacking):
            rows = {column: values[:-1] for column, values in rows.items()}
            cut = cut or "is cut off in its last block; the blocks before it are read"
        yield replace(log, rows=rows, cut=cut, notes=(*notes, *alike.notes))

    def _blocks(self, lines: Lines, alike: Alike) -> Iterator[tuple[int, dict[str, str]]]:
        begins, metric = re.compile(self.begins), re.compile(self.metric)
        losses = {name for trainer in self.trainers for name in trainer.names["loss"]}
        begun, block = 0, {}
        for line, text in lines:
            if begin := begins.search(text):
                if begun:
                    lines.whole()
                    yield begun, block
                block = {name: value for name, value in begin.groupdict().items() if value}
                begun = line
                alike.row("block", text)
            elif begun and (found := metric.search(text)):
                name, value = found["name"], found["value"]
                alike.row(name, text)
                if block.setdefault(name, value) != value:
                    lines.torn(line, f"repeats {name} within a block")
            elif begun:
                alike.other(line, text)
            elif (found := metric.search(text)) and found["name"] in losses:
                alike.lines.append(line)  # its block's first line is damaged
        if begun:
            yield begun, block


@dataclass(frozen=True)
class JsonEvents(Importer):
    """Lines with a marker and a JSON object, each a record of the log or of its settings.

    Attributes:
        about: What it reads, in one line.
        marker: Text of the lines that are read.
        names: Names of the values.
        split: Returns the settings and the values of an event.
        labels: Columns of one value for the whole run, by the names of settings.
    """

    about: str
    marker: str
    names: MetricNames
    split: Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], Mapping[str, Any]]]
    labels: Mapping[str, str] = field(default_factory=dict)

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has the marker."""
        return self.marker in head

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file."""
        lines, config, alike = Lines(file), dict[str, Any](), Alike()
        cells = columns_of(self._records(lines, config, alike))
        log = named_log(file, cells, (self.names,), columns, lines.cut, config)
        found = {ours: config[theirs] for ours, theirs in self.labels.items() if theirs in config}
        yield replace(log, labels=found, notes=(*log.notes, *alike.notes))

    def _records(
        self, lines: Lines, config: dict[str, Any], alike: Alike
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for line, text in lines:
            if self.marker in text:
                event = json_of(text)
                if event is None:
                    lines.torn(line, "is not a complete JSON object")
                    continue
                lines.whole()
                settings, values = self.split(event)
                config |= settings
                if values:
                    alike.row(tuple(values), text)
                    yield line, values
                elif not settings or settings.keys() & {
                    n for v in self.names.names.values() for n in v
                }:
                    alike.other(line, text)
            else:
                alike.other(line, text)


def _levanter_event(event: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    if event.get("event") == "hparams":
        return event.get("hparams") or {}, {}
    if event.get("event") != "log" or not {"step", "metrics"} <= event.keys():
        return {}, {}
    return {}, {**flat(event["metrics"] or {}), "global_step": event["step"]}


def _mllog_event(event: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    key, value = str(event.get("key")), event.get("value")
    metadata = event.get("metadata") or {}
    samples = metadata.get("samples_count")
    if samples is None or "key" not in event:
        return ({key: value} if "key" in event else {}), {}
    values = value if isinstance(value, Mapping) else {key: value}
    return {}, {**values, "samples_count": samples}


def _console(trainer: MetricNames, **more: tuple[str, ...]) -> MetricNames:
    """Return the names with the step of a block, without the LR (rounded to four decimals)."""
    names = {**trainer.names, "step": ("step",), **more}
    return replace(trainer, names={c: n for c, n in names.items() if c != "lr"})


OLMO_CONSOLE = Blocks(
    "OLMo, OLMo-core: console logs",
    r"\[step=(?P<step>\d+)/(?:\d+|\?\?\?)(?:,epoch=(?P<epoch>\d+))?[^\]]*\]\s*$",
    r"(?:^|\s)\s{2,}(?P<name>[^\s=]+(?: [^\s=]+)*)=(?P<value>\S+)\s*$",
    r"\s{2}train/(CE loss|CrossEntropyLoss)=",
    (_console(NAMES["olmo-core"]), _console(NAMES["olmo"])),
)
_BEFORE = {"steps_before": ("time/batch",), "tokens_before": ("time/token",)}
COMPOSER_CONSOLE = Blocks(
    "composer, llm-foundry: console logs",
    r"^\[batch=(?P<step>\d+)/\d+\]:\s*$",
    r"^\s+(?:Train|Eval) (?P<name>\S[^:]*): (?P<value>\S+)\s*$",
    r"^\s+Train (?:loss/train/total|metrics/train/LanguageCrossEntropy): ",
    (replace(_console(NAMES["composer"], **_BEFORE), corrected=CORRECTIONS["batch_tokens"]),),
)
LEVANTER_JSON = JsonEvents(
    "Levanter, marin: lines of the JSON tracker",
    '"tracker": "json_logger"',
    NAMES["levanter"],
    _levanter_event,
)
MLLOG = JsonEvents(
    "MLPerf: MLLOG lines of a language model",
    ":::MLLOG {",
    NAMES["mllog"],
    _mllog_event,
    {"seed": "seed", "peak_lr": "opt_base_learning_rate"},
)
