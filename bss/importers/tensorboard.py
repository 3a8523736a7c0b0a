"""TensorBoard event files, every point of every scalar, through `tensorboard` without TensorFlow.

All records are read (`RawEventFileLoader`); the accumulator of TensorBoard's pages drops some. A
scalar is a `simple_value`, or a tensor of one number (tensorboard/compat/proto/summary.proto).
Event files of a directory are one run: a restart opens another file, and names sort by time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.lines import number
from bss.importers.log import LOSSES, Importer, Log
from bss.importers.names import MetricNames
from bss.importers.plain import LONG_METRICS, long_log, plain_name
from bss.importers.table import table_of
from bss.installation import install
from bss.tables.likeness import kind_of_name, unit_of_loss

MEGATRON_LOSSES = ("lm loss", "lm loss vs samples")
SAMPLES = "samples vs steps"
AROUND = 16
"""Bytes of a record around its data."""


@dataclass(frozen=True)
class EventFiles(Importer):
    """Event files of runs of some trainers, the likelier first."""

    trainers: tuple[MetricNames, ...]
    about: str = "TensorBoard event files; needs the extra `tensorboard`"
    empty: ClassVar[str] = "no run is logged in it, as writers open event files and leave them"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the file has the name that TensorBoard looks for."""
        return "tfevents" in file.name

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file; nothing if it has no scalars, as writers leave files."""
        values, cut = _scalars(file)
        if len(values):
            log = long_log(file, _with_samples(values), self.trainers, columns, cut=cut)
            yield replace(log, place=str(file.resolve().parent))


@dataclass(frozen=True)
class ScalarTables(Importer):
    """Scalars that TensorBoard's page saves, one file per run and tag: run-RUN-tag-TAG.csv."""

    about: str = "CSV files of TensorBoard's page, named run-RUN-tag-TAG.csv"
    empty: ClassVar[str] = "its tag names no loss in nats per token, so nothing of it is read"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the header is the page's."""
        return head.startswith("Wall time,Step,Value") and "-tag-" in file.stem

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file; nothing if its tag does not name a loss."""
        run, _, tag = file.stem.removeprefix("run-").rpartition("-tag-")
        if kind_of_name(tag) not in LOSSES or unit_of_loss(tag):
            return
        table = table_of(file)
        rows = table.read(["Step", "Value"]).rows({"step": "Step", "value": "Value"}, file)
        told = {"notes": table.notes, "cut": table.cut, "plain": plain_name}
        log = long_log(file, rows.assign(name=tag), (LONG_METRICS,), {}, run=run, **told)
        yield replace(log, left_out=table.left_out)


def _with_samples(values: pd.DataFrame) -> pd.DataFrame:
    """Return the values with Megatron's samples at each step.

    Megatron logs its loss twice, at the step and at the samples consumed. The last value of the
    second tag may be cut off.
    """
    by_step = values[values["name"] == MEGATRON_LOSSES[0]]
    by_samples = values[values["name"] == MEGATRON_LOSSES[1]]
    steps = by_step[: len(by_samples)]
    if len(by_step) - len(by_samples) > 1 or list(steps["value"]) != list(by_samples["value"]):
        return values
    return pd.concat([values, steps.assign(name=SAMPLES, value=by_samples["step"].to_numpy())])


def _scalars(file: Path) -> tuple[pd.DataFrame, str]:
    """Return name, step and value of scalars in the order written, and why the end is missing."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto import event_pb2
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise InputError(
            f"{file}: event files are read by tensorboard; {install('tensorboard')}"
        ) from None
    decode = vars(event_pb2)["Event"].FromString  # generated, so not seen by type checkers
    scalars: list[tuple[str, float, float]] = []
    records = list(RawEventFileLoader(str(file)).Load())
    for event in map(decode, records):
        for value in event.summary.value:
            scalar = _number(value, make_ndarray)
            if scalar is not None:
                scalars.append((value.tag, float(event.step), number(scalar)))
    # The loader ends at a record whose check fails; a length and two checks are around each.
    whole = sum(len(record) + AROUND for record in records) == file.stat().st_size
    cut = "" if whole else f"is damaged or cut off in record {len(records) + 1}; read to there"
    return pd.DataFrame(scalars, columns=["name", "step", "value"]), cut


def _number(value: Any, make_ndarray: Callable[[Any], np.ndarray]) -> float | None:
    """Return a scalar's number; None if a summary is something else."""
    if value.HasField("simple_value"):
        return value.simple_value
    if not value.HasField("tensor"):
        return None
    array = make_ndarray(value.tensor)
    return float(array.item()) if array.size == 1 and array.dtype.kind == "f" else None
