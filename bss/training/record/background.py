"""Trackers in threads of their own: what one raises is told once, and no step waits for one."""

import queue
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from bss.training.config import RunConfig
from bss.training.record.status import RunStatus
from bss.training.record.trackers import TRACKERS, Tracker

QUEUED = 10_000
"""Calls that wait at most; where a tracker takes none of them, more are lost."""
PATIENCE = 30.0
"""Seconds that a process waits at its end for all that is queued."""


class Background:
    """One kind of tracker, for all runs of a process."""

    def __init__(self, name: str):
        """Starts its thread; InputError where it is no tracker, or its package is missing."""
        self._name, self._kind = name, TRACKERS[name]
        self._kind.check()
        self._calls: queue.Queue[tuple[str, str, tuple[Any, ...]] | None] = queue.Queue(QUEUED)
        self._trouble, self._warned = "", False
        self._thread = Thread(target=self._serve, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def call(self, run: str, method: str, *arguments: Any) -> None:
        """Queues a call of a run's tracker."""
        try:
            self._calls.put_nowait((run, method, arguments))
        except queue.Full:
            self._trouble = self._trouble or f"has {QUEUED} calls before it; others are lost"
        self._warn()

    def close(self, seconds: float) -> None:
        """Waits for what is queued, but not longer than that."""
        until = time.monotonic() + seconds
        with suppress(queue.Full):
            self._calls.put(None, timeout=seconds)
        self._thread.join(max(until - time.monotonic(), 0))
        if self._thread.is_alive():
            self._trouble = self._trouble or f"hangs: {self._calls.qsize()} calls were not made"
        self._warn()

    def _serve(self) -> None:
        trackers: dict[str, Tracker] = {}
        while (call := self._calls.get()) is not None:
            run, method, arguments = call
            try:
                if method == "begin":
                    trackers[run] = self._kind()
                if run in trackers:
                    getattr(trackers[run], method)(*arguments)
            except BaseException as error:  # whatever a user's code or a service does
                trackers.pop(run, None)
                first = str(error).partition("\n")[0]
                self._trouble = self._trouble or f"of run {run}: {type(error).__name__}: {first}"

    def _warn(self) -> None:
        """Once, and in the thread of those who train."""
        if self._trouble and not self._warned:
            self._warned = True
            warnings.warn(
                f"tracker {self._name} {self._trouble}; training goes on, the directory has all",
                RuntimeWarning,
                stacklevel=3,
            )


class Queued(Tracker):
    """A run's tracker, by way of its thread."""

    def __init__(self, background: Background, run: str):
        self._background, self._run = background, run

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """See `Tracker`."""
        self._background.call(self._run, "begin", run, directory, tokens)

    def row(self, row: Any) -> None:
        """See `Tracker`."""
        self._background.call(self._run, "row", dict(row))

    def end(self, status: RunStatus) -> None:
        """See `Tracker`."""
        self._background.call(self._run, "end", status)


@contextmanager
def in_background(names: Sequence[str]) -> Iterator[list[Background]]:
    """Trackers by name, for this block; none is waited for longer than all of them may."""
    started = [Background(name) for name in names]
    try:
        yield started
    finally:
        until = time.monotonic() + PATIENCE
        for one in started:
            one.close(max(until - time.monotonic(), 0))
