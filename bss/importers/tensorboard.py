"""TensorBoard event files, every point of every scalar, through `tensorboard` without TensorFlow.

All records are read (`RawEventFileLoader`); the accumulator of TensorBoard's pages drops some. A
scalar is a `simple_value`, or a tensor of one number (tensorboard/compat/proto/summary.proto).
Event files of a directory are one run: a restart opens another file, and names sort by time.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bss import install
from bss.errors import InputError
from bss.importers.lines import number
from bss.importers.log import Importer, Log, Rows
from bss.importers.names import MetricNames, choose
from bss.importers.plain import by_step
from bss.importers.text import log_of

Point = tuple[int, float, int]
"""The step and the value of a scalar, and its place in the file."""


@dataclass(frozen=True)
class EventFiles(Importer):
    """Event files of runs of some trainers, the likelier first."""

    trainers: tuple[MetricNames, ...]
    about: str = "TensorBoard event files; needs the extra `tensorboard`"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the file has the name that TensorBoard looks for."""
        return "tfevents" in file.name

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file; nothing if it has no scalars, as writers leave files."""
        scalars, cut = _scalars(file)
        if not scalars:
            return
        trainer, chosen, notes = choose(self.trainers, scalars, columns, str(file))
        picked = {column: scalars[tag] for column, tag in chosen.items()}
        for column, (tag, twin) in trainer.twins.items():
            counts = _counts(scalars.get(tag, []), scalars.get(twin, []))
            picked |= {column: counts} if counts else {}
        log = log_of(file, trainer.corrected(_by_step(picked)), {}, notes, cut)
        yield replace(log, place=str(file.resolve().parent))


def _counts(by_step: Sequence[Point], by_count: Sequence[Point]) -> list[Point]:
    """Return steps with the counts of a tag's twin; none unless both have the same values.

    The last point of the twin may be cut off.
    """
    pairs = list(zip(by_step, by_count, strict=False))
    if len(by_step) - len(by_count) not in (0, 1) or any(a[1] != b[1] for a, b in pairs):
        return []
    return [(a[0], float(b[0]), a[2]) for a, b in pairs]


def _by_step(scalars: Mapping[str, Sequence[Point]]) -> Rows:
    """Return a row for every step; a tag of the step replaces the step of the events."""
    points = [(place, c, step, v) for c, there in scalars.items() for step, v, place in there]
    points.sort(key=lambda point: point[0])
    _, columns, steps, values = zip(*points, strict=True)
    names = np.array(["logged_step" if c == "step" else c for c in columns], object)
    rows = by_step(names, np.array(steps, float), np.array(values))
    if "step" in scalars:
        rows["step"] = rows["logged_step"]
    return rows


def _scalars(file: Path) -> tuple[dict[str, list[Point]], str]:
    """Return the points of every tag in the order written, and why the end is missing."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto import event_pb2
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise InputError(
            f"{file}: event files are read by tensorboard; {install('tensorboard')}"
        ) from None
    records, cut = _records(file)
    decode = vars(event_pb2)["Event"].FromString  # generated, so not seen by type checkers
    scalars: dict[str, list[Point]] = {}
    place = -1
    for place, record in enumerate(RawEventFileLoader(str(file)).Load()):
        event = decode(record)
        for value in event.summary.value:
            read = _number(value, make_ndarray)
            if read is not None:
                scalars.setdefault(value.tag, []).append((event.step, number(read), place))
    if place + 1 < records:  # the loader ends at a record whose check fails
        cut = f"record {place + 2} of {records} is damaged; the records before it are read"
    return scalars, cut


def _number(value: Any, make_ndarray: Callable[[Any], np.ndarray]) -> float | None:
    """Return a scalar's number; None if a summary is something else."""
    if value.HasField("simple_value"):
        return value.simple_value
    if not value.HasField("tensor"):
        return None
    array = make_ndarray(value.tensor)
    return float(array.item()) if array.size == 1 and array.dtype.kind == "f" else None


def _records(file: Path) -> tuple[int, str]:
    """Return the number of whole records of a file, and whether a last one is cut off.

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
        return records, ""
    return records - 1, f"is cut off in record {records}; read to there"
