"""A worker process as its engine sees it: it is given jobs, and tells what happens.

On a node of a cluster, too, runs are written by whoever trains them, so their directories must lie
on a file system that all see, with locks that hold between machines.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bss.files import is_locked
from bss.training.hardware import Slot, memory_environment

COMMAND = (sys.executable, "-m", "bss.training.worker")
"""The worker that trains; see there for jobs and events."""

Event = dict[str, Any]

_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GRACE_SECONDS = 60


def free_port(host: str = "") -> int:
    """Return a port of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind((host, 0))
        return free.getsockname()[1]


def death(status: int) -> str:
    """Return how a process with this exit status ended, e.g. "was ended by SIGKILL"."""
    if status >= 0:
        return f"ended with status {status}"
    guess = " (a guess: the machine ran out of memory)" if status == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-status).name}{guess}"


class Worker(Protocol):
    """What an engine needs of a worker, wherever it is."""

    def train(self, job: dict[str, Any]) -> Iterator[Event]:
        """Gives it a job; its events, of which the last is missing where it was lost."""
        ...

    def stop(self) -> None:
        """Asks it to save and leave."""
        ...

    def close(self) -> str:
        """Lets it save and leave, and waits; how it ended, "died" where nobody knows."""
        ...


class WorkerProcess:
    """A worker process on this machine, in a slot."""

    def __init__(self, slot: Slot, log: Path, directory: str | None = None):
        """Starts it.

        Args:
            slot: its core and its devices.
            log: takes what it and its libraries print.
            directory: where it works; None for here.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        pin = [] if slot.core is None else [f"--core={slot.core}"]
        with open(log, "a") as stderr:
            self._process = subprocess.Popen(
                [*COMMAND, *pin, *slot.joining],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=directory,
                env={**_ENVIRONMENT, **memory_environment(), **os.environ, **slot.environment},
                start_new_session=True,  # an interrupt reaches the engine, which passes it on
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def train(self, job: dict[str, Any]) -> Iterator[Event]:
        """Gives it a job; its events, of which the last is missing where it was lost."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                event = json.loads(line)
                yield event
                if event["event"] != "progress":
                    return

    def stop(self) -> None:
        """Asks it to save and leave."""
        self._process.terminate()

    def close(self) -> str:
        """Closes the pipe, the signal to save and leave, and waits; how it ended."""
        try:
            self._process.communicate(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return f"did not leave within {_GRACE_SECONDS} seconds"
        return death(self._process.returncode)


class Team:
    """The workers that train one run together, each a process of it; see `Worker`.

    Attributes:
        workers: the processes, in their order.
    """

    def __init__(self, workers: Sequence[Worker]):
        self.workers = workers

    def train(self, job: dict[str, Any]) -> Iterator[Event]:
        """The events of the first; where it was lost, the mistake of another, if one told it."""
        first, *others = self.workers
        last: Event = {}
        with ThreadPoolExecutor(len(self.workers)) as pool:
            told = [pool.submit(deque[Event], other.train(job), 1) for other in others]
            for last in first.train(job):
                yield last
            endings = [event for one in told for event in one.result()]
        if last.get("event", "progress") == "progress":
            yield from [event for event in endings if event["event"] == "failed"][:1]

    def stop(self) -> None:
        """Asks all to save and leave."""
        for worker in self.workers:
            worker.stop()

    def close(self) -> str:
        """Lets all save and leave; how they ended, each way once."""
        with ThreadPoolExecutor(len(self.workers) or 1) as pool:
            return ", ".join(dict.fromkeys(pool.map(lambda worker: worker.close(), self.workers)))


class Probe(NamedTuple):
    """A file that the machine of the sweep holds locked: its path and its text."""

    path: Path
    text: str


@contextlib.contextmanager
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
