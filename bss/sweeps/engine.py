"""Engines, which train the runs of a sweep.

A queue engine turns a queue of runs into jobs for workers. If a run diverges or fails, this is
recorded and the sweep continues. If a worker is lost, its run is tried again. An interrupt saves
every run.

The workers of a slot engine are in slots: the device groups of one or more machines.
"""

import json
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bss.errors import InputError, check
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Queue, Statuses
from bss.sweeps.setup import EngineConfig, runs_per_program
from bss.training.execution import Execution
from bss.training.hardware import Slot
from bss.training.run_config import RunConfig
from bss.training.run_directory import CURVE, RunStatus, run_path, status_at
from bss.training.worker import Job
from bss.values import to_dict

_POLL_SECONDS = 2


class Engine(AbstractContextManager):
    """Interface of an engine, which trains the runs of a sweep."""

    def __init__(self, config: EngineConfig) -> None:
        """Prepare the engine; raise InputError if it cannot be used."""
        self.config = config

    @classmethod
    def find_devices(cls, config: EngineConfig) -> Mesh | None:
        """Return the devices of one run; None if this process does not know them.

        Nothing is started. By default nothing is known.

        Raises:
            InputError: If there are too few devices, or `fsdp` does not divide them.
        """
        return None

    @abstractmethod
    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """Train all runs; return each run's final status by id.

        A run whose parent did not finish is "skipped"; one with an error, or whose worker was lost
        too often, is "failed" with a message.
        """

    def close(self) -> None:
        """Release workers and connections."""

    def __exit__(self, *_: Any) -> None:
        self.close()


class WorkerLost(Exception):
    """A worker ended before its job."""


class QueueEngine(Engine):
    """An engine that trains the runs of a queue as jobs of workers.

    Attributes:
        accelerators: whether workers have a GPU or a TPU.
    """

    accelerators = False

    @abstractmethod
    def free(self) -> int | None:
        """Return the number of jobs that can start now; None: any number."""

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> list["Future[str]"]:
        """Start jobs.

        Returns:
            The result of each: "" or an error message; WorkerLost if the job is to be tried again.
        """

    @abstractmethod
    def stop(self) -> None:
        """Save the runs that are being trained, and return when they have stopped."""

    def poll(self) -> None:
        """Complete the futures of jobs that have ended."""

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """See `Engine.train`."""
        progress = progress or Progress("runs", quiet=True)
        queue = Queue(runs, execution, progress, self._runs_per_program)
        training: dict[Future[str], list[RunConfig]] = {}
        curves = CurveWatch(Path(execution.runs), progress)
        with progress:
            try:
                while queue.waiting or training:
                    groups = queue.take(self.free())
                    jobs = [_job(group, execution, queue.is_vmapped(group)) for group in groups]
                    if jobs:
                        training |= zip(self.submit(jobs), groups, strict=True)
                    if queue.waiting and not training:
                        left = f"{queue.waiting} runs are left, the same command continues"
                        raise InputError(f"no worker is left; {left}")
                    for future in wait(training, _POLL_SECONDS, FIRST_COMPLETED).done:
                        self._end(queue, training.pop(future), future, execution)
                    self.poll()
                    curves.look([run for group in training.values() for run in group])
            except BaseException:
                self.stop()
                raise
        return queue.statuses

    def _runs_per_program(self, run: RunConfig) -> int:
        return runs_per_program(run, self.config, accelerators=self.accelerators)

    def _end(
        self, queue: Queue, group: Sequence[RunConfig], future: "Future[str]", execution: Execution
    ) -> None:
        """Record what became of a group."""
        try:
            message = future.result()
        except WorkerLost as lost:
            queue.lose(group, str(lost), self.config.retries)
            return
        except Exception as error:  # of the engine itself; other runs may wait for these
            message = f"{type(error).__name__}: {error}"
        for run in group:
            status = RunStatus("failed", message=message)
            if not message:
                status = status_at(run_path(execution.runs, run), execution.plan(run))
            if status.status in ("to do", "running"):
                hint = "name a directory of runs that all machines share"
                status = RunStatus("failed", message=f"was trained, and is not here; {hint}")
            queue.finish(run, status)


class CurveWatch:
    """Shows how far the runs that are being trained have come, by their curves.

    Only what was appended since the last look is read, and at most every two seconds: runs may be
    a thousand, on a network file system.
    """

    def __init__(self, runs: Path, progress: Progress) -> None:
        self._runs = runs
        self._progress = progress
        self._read_bytes: dict[str, int] = {}
        self._next_look = 0.0

    def look(self, training: Sequence[RunConfig]) -> None:
        """Update the progress of the runs that are being trained."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _POLL_SECONDS
        for run in training:
            tokens = self._read_tokens(run)
            if tokens is not None:
                self._progress.update(run.id, tokens - run.start)

    def _read_tokens(self, run: RunConfig) -> int | None:
        """Return the tokens of the last whole line that was appended; None without a new one."""
        try:
            with open(run_path(self._runs, run) / CURVE, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = self._read_bytes.get(run.id, 0)
                if size < start:  # it was cut when the run was resumed
                    start = 0
                file.seek(start)
                text = file.read(size - start)
        except OSError:
            return None
        whole = text.rfind(b"\n") + 1
        self._read_bytes[run.id] = start + whole
        try:
            return int(json.loads(text[:whole].splitlines()[-1])["tokens"])
        except (IndexError, ValueError, KeyError, TypeError):  # nothing new, or no row of a curve
            return None


def _job(group: Sequence[RunConfig], execution: Execution, vmapped: bool) -> Job:
    runs = {run.id: to_dict(run) for run in group}
    return {"runs": runs, "execution": asdict(execution), "vmapped": vmapped}


class SlotEngine(QueueEngine):
    """An engine with one persistent worker per slot.

    A worker has three methods. `train` returns the result of a job or raises WorkerLost, `stop`
    requests that the worker saves and ends, and `close` waits until it has ended.

    Attributes:
        workers: the workers that were started, by slot.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        one = "1: only engine slurm trains a run in several processes"
        check(str(config.processes) == "1", "setup.engine.processes", config.processes, one)
        self.workers: dict[Slot, Any] = {}
        self._busy = set[Slot]()
        self._idle = list[Slot]()
        self._lock = threading.Lock()
        """Held to change or to go through `workers`: the threads of jobs add and remove them."""
        self._stopping = False
        self._pool = ThreadPoolExecutor(1000)

    @abstractmethod
    def slots(self) -> Sequence[Slot]:
        """Return the slots that exist at this moment."""

    @abstractmethod
    def start(self, slot: Slot, log: Path) -> Any:
        """Start a worker in a slot; raise WorkerLost if that fails."""

    def free(self) -> int:
        """Return the number of slots without a job."""
        self._idle = [slot for slot in self.slots() if slot not in self._busy]
        return len(self._idle)

    def submit(self, jobs: Sequence[Job]) -> list["Future[str]"]:
        """Give each job to the worker of a free slot."""
        slots = self._idle[: len(jobs)]
        self._busy.update(slots)
        return [self._pool.submit(self._train, *one) for one in zip(slots, jobs, strict=True)]

    def stop(self) -> None:
        """Stop all workers permanently, after they have saved."""
        with self._lock:
            self._stopping = True
            for worker in self.workers.values():
                worker.stop()
        self._pool.shutdown()

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            workers = [*self.workers.values()]
            self.workers.clear()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.close(), workers))
        self._pool.shutdown()

    def _train(self, slot: Slot, job: Job) -> str:
        log = Path(job["execution"]["runs"]).absolute() / "logs" / f"worker-{slot.name}.log"
        try:
            worker = self.workers.get(slot) or self.start(slot, log)
            with self._lock:
                self.workers[slot] = worker
                if self._stopping:
                    worker.stop()
            return worker.train(job)
        except WorkerLost as lost:
            with self._lock:
                self.workers.pop(slot, None)
            raise WorkerLost(f"worker {slot.name} {lost}; see {log}") from None
        finally:
            self._busy.discard(slot)
