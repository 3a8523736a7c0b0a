"""A worker on a node of a cluster, and what the node must share with the machine of the sweep.

Runs are written by whoever trains them, so their directories must lie on a file system that all
see, with locks that hold between machines.
"""

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bss.files import is_locked
from bss.machines.slots import Slot
from bss.sweeps.workers import WorkerProcess


class Probe(NamedTuple):
    """A file that the machine of the sweep holds locked: its path and its text."""

    path: Path
    text: str


@contextmanager
def held_probe(runs: Path) -> Iterator[Probe]:
    """A probe in a directory of runs, for this block."""
    runs = runs.absolute()
    runs.mkdir(parents=True, exist_ok=True)
    probe = Probe(runs / f".probe-{uuid.uuid4().hex}", uuid.uuid4().hex)
    try:
        with open(probe.path, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(probe.text)
            file.flush()
            yield probe
    finally:
        probe.path.unlink(missing_ok=True)


def lacks(directory: Path, probe: Probe, data: str) -> str:
    """What this machine lacks to train for a sweep on another, in one line; "" for nothing.

    Args:
        directory: in which the sweep was started.
        probe: that the sweep's machine holds locked.
        data: directory of the token shards; "" where none are read.
    """
    runs = probe.path.parent
    if not probe.path.is_file() or probe.path.read_text() != probe.text:
        return f"does not see the runs in {runs}; set setup.engine.runs to a directory all share"
    if not is_locked(probe.path):
        return (
            f"does not see the locks in {runs}, and two could write one run; mount it with locks "
            "between machines, or set setup.engine.runs to a file system that has them"
        )
    if not directory.is_dir():
        return f"has no directory {directory}; start the sweep in one that all share"
    if data and not (shards := directory / data / "manifest.json").is_file():
        return f"lacks the data, {shards}; copy it there, or keep it where all see it"
    return ""


class NodeWorker(WorkerProcess):
    """A worker process on the node where this object lives, once it is started there."""

    def __init__(self):
        """Starts nothing yet."""

    def start(self, slot: Slot, log: Path, directory: Path, probe: Probe, data: str) -> str:
        """Starts the process; else says what the node `lacks`."""
        lack = lacks(directory, probe, data)
        if not lack:
            super().__init__(slot, log, str(directory))
        return lack
