"""Values without a console: Megatron-LM's golden values, and torchtitan's list of losses.

- golden_values*.json (NVIDIA/Megatron-LM, `tests/functional_tests`) has for each metric
  `start_step`, `step_interval` and `values`: by iteration, or before 2025 a list of every fifth one
  from iteration 1 on. A value "nan" was not logged.
- `scripts/loss_compare.py` of torchtitan writes lines `STEP LOSS` without a header.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.files import read_json
from bss.importers.lines import Lines, columns_of
from bss.importers.log import Importer, Log
from bss.importers.names import NAMES, log_of, named_log
from bss.importers.unread import falls, rises

LOSS = "lm loss"
MEGATRON = replace(NAMES["megatron"], names={**NAMES["megatron"].names, "step": ("step",)})
HEADERLESS = "has no header; its columns are read as steps and training losses"
_PAIR = re.compile(r"\s*(\d{1,15})[ \t]+(\d+\.\d+(?:e[+-]?\d+)?|nan|inf)\s*")


@dataclass(frozen=True)
class GoldenValues(Importer):
    """Values of metrics by iteration, with which tests of Megatron-LM compare."""

    about: str = "Megatron-LM: golden_values.json"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the file has values of the loss."""
        return file.suffix == ".json" and f'"{LOSS}"' in head and '"values"' in head

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file.

        Raises:
            InputError: If the values of a metric are neither by iteration nor a list.
        """
        by_step: dict[int, dict[str, Any]] = {}
        for name, metric in read_json(file, "it may be cut off; copy it again").items():
            if isinstance(metric, Mapping) and "values" in metric:
                for step, value in _by_step(file, name, metric).items():
                    logged = str(value).lower() != "nan"
                    by_step.setdefault(step, {"step": step})[name] = value if logged else None
        cells = columns_of(enumerate((by_step[step] for step in sorted(by_step)), 1))
        yield named_log(file, cells, (MEGATRON,), columns)


def _by_step(file: Path, name: str, metric: Mapping[str, Any]) -> dict[int, Any]:
    """Return the values of a metric by iteration."""
    values = metric["values"]
    if isinstance(values, Mapping) and all(step.isdigit() for step in values):
        return {int(step): value for step, value in values.items()}
    start = metric.get("start_step")
    every = metric.get("step_interval")
    if not isinstance(values, list) or not isinstance(start, int) or not isinstance(every, int):
        raise InputError(f"{file}: values of {name} have no iterations; expected a key for each")
    first = max(start, 1)  # an iteration is completed; a list from 0 on begins with the first
    return {first + i * every: value for i, value in enumerate(values)}


@dataclass(frozen=True)
class ListOfLosses(Importer):
    """Lines of a step and a loss, without a header."""

    about: str = "torchtitan: losses by step without a header, as its loss_compare.py writes them"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether every line is a pair, the first of which rises and the second falls."""
        lines = [line for line in head.splitlines() if line.strip()]
        pairs = [_PAIR.fullmatch(line) for line in lines]
        if len(pairs) < 3 or None in pairs:
            return False
        values = np.array([pair.groups() for pair in pairs if pair], float)
        finite = values[np.isfinite(values).all(axis=1)]
        if len(finite) < 3 or not finite[0, 0]:
            return False
        return rises(finite[:, 0]) and falls(finite[:, 1])

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file."""
        lines = Lines(file)
        cells = columns_of(_pairs(lines))
        rows = cells.rows({"step": "step", "loss": "loss"}, file)
        log = log_of(file, rows, {}, (HEADERLESS, *lines.alike.notes), lines.cut)
        yield replace(log, left_out=lines.left_out)


def _pairs(lines: Lines) -> Iterator[tuple[int, dict[str, str]]]:
    for line, text in lines:
        if found := _PAIR.fullmatch(text):
            lines.whole("pair", text)
            yield line, {"step": found[1], "loss": found[2]}
        elif text.strip():
            lines.torn(line, "is not a step and a loss")
