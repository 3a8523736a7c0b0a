"""TensorBoard event files, every point of every scalar, through `tensorboard` without TensorFlow.

Records are read one by one (`RawEventFileLoader`), so nothing is sampled away as in the accumulator
behind TensorBoard's own pages. A scalar is a `simple_value`, or a tensor of one number
(tensorboard/compat/proto/summary.proto). Event files of a directory are one run: a restart opens
another file, and names sort by time.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bss import install
from bss.errors import InputError
from bss.importers.damage import damage
from bss.importers.lines import rows_of
from bss.importers.log import COLUMNS, Importer, Log, Rows, run_name
from bss.importers.metrics import MetricNames, choose


class Point(NamedTuple):
    """A value of a scalar, and which event of its file wrote it."""

    step: int
    value: float
    position: int


@dataclass(frozen=True)
class EventFiles(Importer):
    """Event files of runs of some trainers, the likelier first."""

    trainers: tuple[MetricNames, ...]
    about: str = "TensorBoard event files; needs the extra `tensorboard`"

    def recognises(self, file: Path, head: str) -> bool:
        """By the name, which TensorBoard looks for too."""
        return "tfevents" in file.name

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file; nothing of a file without scalars, which writers open and leave."""
        scalars = _scalars(file)
        if not scalars:
            return
        trainer, chosen, notes = choose(self.trainers, scalars, columns, str(file))
        picked = {c: scalars[chosen[c]] for c in COLUMNS if c in chosen}
        for column, (tag, twin) in trainer.twins.items():
            counts = _counts(scalars.get(tag, []), scalars.get(twin, []))
            picked |= {column: counts} if counts else {}
        rows = trainer.corrected(_by_step(picked))
        yield Log(run_name(file), rows, str(file), str(file.resolve().parent), None, notes)


def _counts(by_step: Sequence[Point], by_count: Sequence[Point]) -> list[Point]:
    """Steps and the counts of a tag's twin; none unless the two have the same values.

    Of the last, one may be cut off.
    """
    pairs = list(zip(by_step, by_count, strict=False))
    if len(by_step) - len(by_count) not in (0, 1) or any(a.value != b.value for a, b in pairs):
        return []
    return [Point(a.step, float(b.step), a.position) for a, b in pairs]


def _by_step(scalars: Mapping[str, Sequence[Point]]) -> Rows:
    """A row for every step, in the order written; what a file has twice makes another row.

    A tag that says the step goes before the step of the events, which may be another count.
    """
    rows: dict[tuple[int, int], dict[str, float]] = {}
    written: dict[tuple[int, int], int] = {}
    for column, points in scalars.items():
        times: dict[int, int] = {}
        for step, value, position in points:
            times[step] = times.get(step, 0) + 1
            key = (times[step], step)
            rows.setdefault(key, {} if "step" in scalars else {"step": float(step)})[column] = value
            written[key] = min(position, written.get(key, position))
    return rows_of(rows[key] for key in sorted(rows, key=written.__getitem__))


def _scalars(file: Path) -> dict[str, list[Point]]:
    """The points of every tag, in the order written; a value is infinite where it is NaN."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto import event_pb2
    except ImportError:
        raise InputError(
            f"{file}: event files are read by tensorboard; {install('tensorboard')}"
        ) from None
    records, left = _records(file), damage()
    decode = vars(event_pb2)["Event"].FromString  # generated, so not seen by type checkers
    scalars: dict[str, list[Point]] = {}
    position = -1
    for position, record in enumerate(RawEventFileLoader(str(file)).Load()):
        event = decode(record)
        for value in event.summary.value:
            number = _number(value)
            if number is not None:
                number = np.inf if np.isnan(number) else number
                scalars.setdefault(value.tag, []).append(Point(event.step, number, position))
    if position + 1 < records:  # the loader ends at a record whose check fails
        left.end = f"record {position + 2} of {records} is damaged; read to there"
    return scalars


def _number(value: Any) -> float | None:
    """A scalar's number, None where a summary is something else."""
    if value.HasField("simple_value"):
        return value.simple_value
    if not value.HasField("tensor") or any(d.size != 1 for d in value.tensor.tensor_shape.dim):
        return None
    tensor = value.tensor
    if tensor.float_val or tensor.double_val:
        return float((tensor.float_val or tensor.double_val)[0])
    kinds = {4: "<f", 8: "<d"}  # DT_FLOAT is 1, DT_DOUBLE is 2
    size = len(tensor.tensor_content)
    if tensor.dtype in (1, 2) and size in kinds:
        return struct.unpack(kinds[size], tensor.tensor_content)[0]
    return None


def _records(file: Path) -> int:
    """How many whole records a file has; a last one that is cut off is told.

    A record is a length and its check, data and their check.
    """
    size, at, records = file.stat().st_size, 0, 0
    with file.open("rb") as opened:
        while at < size:
            opened.seek(at)
            length = opened.read(8)
            at += 16 + (struct.unpack("<Q", length)[0] if len(length) == 8 else size)
            records += 1
    if at == size:
        return records
    damage().end = f"is cut off in record {records}; read to there"
    return records - 1
