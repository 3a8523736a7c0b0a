"""A worker process as its engine sees it: it is given jobs, and tells what happens."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from bss.machines.slots import Slot

COMMAND = (sys.executable, "-m", "bss.training.running.worker")
"""The worker that trains; see there for jobs and events."""

Event = dict[str, Any]

_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GRACE_SECONDS = 60


class Worker(Protocol):
    """What an engine needs of a worker, wherever it is."""

    def train(self, job: dict[str, Any]) -> Iterator[Event]:
        """Gives it a job; its events, of which the last is missing where it was lost."""
        ...

    def stop(self) -> None:
        """Asks it to save and leave."""
        ...

    def close(self) -> None:
        """Lets it save and leave, and waits."""
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
                [*COMMAND, *pin],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=directory,
                env={**_ENVIRONMENT, **os.environ, **slot.environment},
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

    def close(self) -> None:
        """Closes the pipe, the signal to save and leave, and waits."""
        try:
            self._process.communicate(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
