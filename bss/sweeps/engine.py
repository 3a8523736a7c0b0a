"""Engines, which train the runs of a sweep.

A queue engine turns a queue of runs into jobs for workers. A forked run waits for its parent, and
finished runs are not trained again. If a run diverges, this is recorded and the sweep continues.
If a worker is lost, its run is tried again. An interrupt saves every run.

The longest runs go first, measured by the FLOPs of a run and of the forked runs that wait for it.
This avoids a long run at the end while other workers are idle.

The workers of a slot engine are in slots: the device groups of one or more machines.
"""

import math
import threading
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bss.errors import InputError, check
from bss.sweeps.price import price
from bss.sweeps.progress import Progress
from bss.sweeps.setup import EngineConfig, runs_per_program
from bss.training.execution import Execution
from bss.training.hardware import Slot
from bss.training.loop import is_done
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus, read_curve, read_status, run_path
from bss.training.vmapped import vmap_key
from bss.training.worker import Job
from bss.values import to_dict

Statuses = dict[str, RunStatus]
"""Statuses of runs, by id."""


class Queue:
    """The runs of a sweep that are not trained yet.

    Attributes:
        statuses: Statuses of the runs that have ended.
        waiting: runs to be trained, the longest first; a parent before its branches.
    """

    def __init__(
        self,
        runs: Sequence[RunConfig],
        execution: Execution,
        progress: Progress,
        runs_per_program: Callable[[RunConfig], int] = lambda run: 1,
    ) -> None:
        """Find the runs that have ended before.

        Args:
            runs: distinct runs.
            execution: Devices, directory and kernels of the runs.
            progress: shows every run.
            runs_per_program: Number of runs like a given one that share a program.
        """
        self.statuses: Statuses = {}
        self._progress, self._lost = progress, Counter[str]()
        for run in runs:
            plan = execution.plan(run)
            progress.add(run.id, plan.tokens - run.start)
            if is_done(run, execution):
                self.finish(run, read_status(run_path(execution.runs, run)))
        left = [run for run in runs if run.id not in self.statuses]
        self._lengths = lengths(left)
        self._pending = {run.id for run in left}
        self.waiting = self._sorted(left)
        self._most = {run.id: runs_per_program(run) for run in left}
        several = [run for run in left if self._most[run.id] > 1]
        self._keys = {run.id: vmap_key(run, execution) for run in several}

    def finish(self, run: RunConfig, status: RunStatus) -> None:
        """Record that a run has ended."""
        self.statuses[run.id] = status
        self._progress.finish(run.id, status.status)

    def take(self, workers: int | None) -> list[list[RunConfig]]:
        """Return the groups of runs that are trained now, at most one per worker.

        Waiting runs whose parents did not finish are skipped.

        Args:
            workers: number of workers without work, among which runs are divided; None: no limit.
        """
        for run in tuple(self.waiting):  # a parent is before its branches
            parent = run.parent.run if run.parent else None
            if parent in self.statuses and not self.statuses[parent].finished:
                self.waiting.remove(run)
                self.finish(run, RunStatus("skipped", message=f"{parent} failed"))
        pending = self._pending - self.statuses.keys()
        ready = [run for run in self.waiting if not (run.parent and run.parent.run in pending)]
        share = len(ready) if workers is None else math.ceil(len(ready) / (workers or 1))
        most = {run.id: min(share, self._most[run.id]) for run in ready}
        groups = _groups(ready, self._keys, most)[:workers]
        for run in (run for group in groups for run in group):
            self.waiting.remove(run)
        return groups

    def is_vmapped(self, group: Sequence[RunConfig]) -> bool:
        """Return True if a group is trained in one program."""
        return self._keys.get(group[0].id) is not None

    def lose(self, group: Sequence[RunConfig], message: str, retries: int) -> None:
        """Queue the runs of a lost worker again, except those that were lost `retries` times."""
        for run in group:
            self._lost[run.id] += 1
            if self._lost[run.id] > retries:
                self.finish(run, RunStatus("failed", message=message))
                continue
            self.waiting = self._sorted([*self.waiting, run])
            again = f"trying again ({self._lost[run.id]} of {retries})"
            warnings.warn(f"run {run.id}: {message}; {again}", RuntimeWarning, stacklevel=2)

    def _sorted(self, runs: Sequence[RunConfig]) -> list[RunConfig]:
        return sorted(runs, key=lambda run: -self._lengths[run.id])


def lengths(runs: Sequence[RunConfig]) -> dict[str, float]:
    """Return the FLOPs of each run plus its longest chain of branches, by id."""
    branches: dict[str, list[RunConfig]] = {}
    for run in runs:
        if run.parent:
            branches.setdefault(run.parent.run, []).append(run)
    known: dict[str, float] = {}

    def length(run: RunConfig) -> float:
        if run.id not in known:
            after = max(map(length, branches.get(run.id, ())), default=0.0)
            known[run.id] = price([run]).flops + after
        return known[run.id]

    return {run.id: length(run) for run in runs}


def _groups(
    runs: Sequence[RunConfig], keys: Mapping[str, Hashable], most: Mapping[str, int]
) -> list[list[RunConfig]]:
    """Return the runs in groups that share a program, in the order of the first of each."""
    groups: list[list[RunConfig]] = []
    open_groups: dict[Hashable, list[RunConfig]] = {}
    for run in runs:
        key = keys.get(run.id)
        group = open_groups.get(key, []) if key is not None else []
        if not 0 < len(group) < most[run.id]:
            groups.append(group := [])
            open_groups[key] = group
        group.append(run)
    return groups


_POLL_SECONDS = 2


class Engine(AbstractContextManager):
    """Interface of an engine, which trains the runs of a sweep."""

    def __init__(self, config: EngineConfig) -> None:
        """Prepare the engine; raise InputError if it cannot be used."""
        self.config = config

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
        with progress:
            try:
                while queue.waiting or training:
                    groups = queue.take(self.free())
                    jobs = [_job(group, execution, queue.is_vmapped(group)) for group in groups]
                    training |= zip(self.submit(jobs) if jobs else [], groups, strict=True)
                    if queue.waiting and not training:
                        left = f"{len(queue.waiting)} runs are left, the same command continues"
                        raise InputError(f"no worker is left; {left}")
                    for future in wait(training, _POLL_SECONDS, FIRST_COMPLETED).done:
                        self._end(queue, training.pop(future), future, execution)
                    self.poll()
                    for run in (run for group in training.values() for run in group):
                        if curve := read_curve(run_path(execution.runs, run)):
                            progress.update(run.id, curve[-1]["tokens"] - run.start)
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
                status = read_status(run_path(execution.runs, run))
            if status.status in ("to do", "running"):
                hint = "name a directory of runs that all machines share"
                status = RunStatus("failed", message=f"was trained, and is not here; {hint}")
            queue.finish(run, status)


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
        self._busy, self._idle = set[Slot](), list[Slot]()
        self._lock, self._stopping = threading.Lock(), False
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
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.close(), self.workers.values()))
        self.workers.clear()
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
            self.workers.pop(slot, None)
            raise WorkerLost(f"worker {slot.name} {lost}; see {log}") from None
        finally:
            self._busy.discard(slot)
