"""Engines: what trains the runs of a sweep. Those with workers feed them from one queue.

A branch waits for its parent. Finished runs are no-ops, a diverged run is recorded and the sweep
goes on, a run whose worker was lost is tried again; an interrupt saves every run and leaves.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bss.errors import InputError, check
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Queue, Statuses
from bss.sweeps.setup import EngineConfig
from bss.sweeps.widths import parse_processes, width
from bss.sweeps.workers import Event, Team, Worker
from bss.training.execution import Execution
from bss.training.hardware import Slot
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus, is_being_written, run_path
from bss.values import from_dict, to_dict

_LOOK_SECONDS = 5
_LOCK_SECONDS = 100  # a server of files keeps the locks of a machine that is gone for 90


class Engine(ABC):
    """What trains the runs of a sweep."""

    def __init__(self, config: EngineConfig):
        """The engine that a config asks for; InputError where it cannot be had."""
        self.config = config

    @abstractmethod
    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """Trains all runs; returns each run's final status by id.

        A run whose parent did not finish has the status "skipped"; one that was refused, or whose
        worker was lost too often, has "failed" and a message.
        """

    def close(self) -> None:  # noqa: B027 - an engine may hold nothing
        """Lets go of what it holds."""

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class WorkerLost(Exception):
    """A worker is no more.

    Attributes:
        status: of the runs that it trained, if they are not tried again.
        begun: whether it was given them.
    """

    def __init__(self, status: RunStatus, *, begun: bool = True):
        super().__init__(status.message)
        self.status, self.begun = status, begun


class WorkerEngine(Engine):
    """Trains runs with workers in slots, kept from sweep to sweep; what those are, a kind says.

    Attributes:
        workers: those that have been started, by slot.
    """

    def __init__(self, config: EngineConfig):
        """Starts nothing yet."""
        super().__init__(config)
        several = any(count > 1 for _, count in parse_processes(config.processes))
        one = "1: a run of several processes is trained by itself"
        check(config.fleet <= 1 or not several, "setup.engine.fleet", config.fleet, one)
        self.workers: dict[Slot, Worker] = {}
        self._starting = threading.Lock()
        self._interrupted = False

    @abstractmethod
    def slots(self) -> Sequence[Slot]:
        """Where workers can be, at this moment."""

    @abstractmethod
    def start(self, slot: Slot, log: Path, execution: Execution) -> Worker:
        """Starts a worker in a slot; WorkerLost where none can be."""

    @abstractmethod
    def coordinator(self, slot: Slot) -> str:
        """HOST:PORT at which a process in a slot can be reached by the others of its run."""

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """See `Engine.train`."""
        self._interrupted = False
        progress = progress or Progress("runs", quiet=True)
        queue = Queue(runs, execution, progress)
        self._check_room(queue.waiting)
        training: dict[Future[Statuses], tuple[list[Slot], list[RunConfig]]] = {}
        with progress, ThreadPoolExecutor(max(len(runs), 1)) as pool:
            try:
                queue.together(self.fleets(runs, queue.waiting, execution))
                while queue.waiting or training:
                    busy = {slot for slots, _ in training.values() for slot in slots}
                    free = [slot for slot in self.slots() if slot not in busy]
                    for slots, group in self._next(queue, free):
                        job = slots, group, queue.is_fleet(group), execution, progress
                        training[pool.submit(self._train_some, *job)] = slots, group
                    if queue.waiting and not training:
                        raise InputError(self.nowhere(len(queue.waiting)))
                    for future in wait(training, _LOOK_SECONDS, FIRST_COMPLETED).done:
                        self._end(queue, training.pop(future)[1], future)
            except BaseException:
                self._interrupt()
                raise
        return queue.statuses

    def fleets(
        self, runs: Sequence[RunConfig], waiting: Sequence[RunConfig], execution: Execution
    ) -> dict[str, int]:
        """How many of its shape each waiting run is trained with, by its id; of a sweep's runs."""
        return {run.id: max(self.config.fleet, 1) for run in waiting}

    def nowhere(self, runs: int) -> str:
        """Says that no slot is left for so many runs."""
        return f"no slot is left for {runs} runs; the same command continues"

    def close(self) -> None:
        """Ends the workers."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.close(), self.workers.values()))
        self.workers.clear()

    def _check_room(self, runs: Sequence[RunConfig]) -> None:
        """Refuses a run of more processes than there are places for."""
        slots = self.slots()
        several = len({slot.node for slot in slots}) > 1
        for run in runs:
            asked = width(self.config.processes, run)
            if asked > 1 and (there := len(self._share(slots, asked))) < asked:
                kind = "nodes" if several else "slots of one machine"
                raise InputError(
                    f"setup.engine.processes is {self.config.processes}: run {run.id} asks for "
                    f"{asked} {kind}, and there are {there}; ask for no more, or add some"
                )

    def _share(self, free: Sequence[Slot], asked: int) -> list[Slot]:
        """Slots for the processes of a run, on nodes of their own where the engine has several.

        Too few where so many are not free.
        """
        if asked > 1 and len({slot.node for slot in self.slots()}) > 1:
            free = [*{slot.node: slot for slot in reversed(free)}.values()][::-1]
        return [*free[:asked]]

    def _next(
        self, queue: Queue, free: Sequence[Slot]
    ) -> Iterator[tuple[list[Slot], list[RunConfig]]]:
        """What is trained next, and where; where the next has no room yet, those behind it wait."""
        groups = queue.take(len(free))
        while groups:
            asked = width(self.config.processes, groups[0][0])
            if len(slots := self._share(free, asked)) < asked:
                break
            free = [slot for slot in free if slot not in slots]
            yield slots, groups.pop(0)
        for group in groups:
            queue.put_back(group)

    def _end(self, queue: Queue, group: Sequence[RunConfig], future: Future[Statuses]) -> None:
        """Tells the queue what became of a group; also of an error of the engine itself."""
        try:
            outcomes = future.result()
        except WorkerLost as lost:
            if lost.begun:
                queue.lose(group, lost.status, self.config.retries)
            else:
                queue.put_back(group)
            return
        except Exception as error:  # others may wait for these runs
            failed = RunStatus("failed", message=f"{type(error).__name__}: {error}")
            outcomes = {run.id: failed for run in group}
        for run in group:
            queue.finish(run, outcomes[run.id])

    def _train_some(
        self,
        slots: Sequence[Slot],
        runs: Sequence[RunConfig],
        fleet: bool,
        execution: Execution,
        progress: Progress,
    ) -> Statuses:
        worker = self._worker(slots, execution)
        starts = {run.id: run.start for run in runs}
        job = {"runs": [to_dict(run) for run in runs], "execution": asdict(execution)}
        last: Event = {}
        for event in worker.train({**job, "fleet": fleet}):
            if event["event"] == "progress":
                progress.update(event["run"], event["tokens"] - starts[event["run"]])
            else:
                last = event
        ending = last.get("event")
        if len(slots) > 1 and ending in ("done", "failed"):
            self._leave(slots)
        if ending == "done":
            ended = last["statuses"].items()
            return {run: from_dict(RunStatus, one, strict=False) for run, one in ended}
        if ending == "failed":
            return dict.fromkeys(starts, RunStatus("failed", message=last["message"]))
        how = self._leave(slots)
        self._await_locks(runs, execution)
        if ending == "interrupted":
            raise WorkerLost(RunStatus("interrupted"))
        names = " and ".join(slot.name for slot in slots)
        logs = " and ".join(str(_log(execution, slot)) for slot in slots)
        raise WorkerLost(RunStatus("failed", message=f"worker {names} {how}; see {logs}"))

    def _await_locks(self, runs: Sequence[RunConfig], execution: Execution) -> None:
        """Returns when nobody writes the directories of runs: a lost worker may still save."""
        paths = [run_path(execution.runs, run) for run in runs]
        until = time.monotonic() + _LOCK_SECONDS
        while any(map(is_being_written, paths)) and time.monotonic() < until:
            time.sleep(0.2)

    def _worker(self, slots: Sequence[Slot], execution: Execution) -> Worker:
        if self._interrupted:
            raise InterruptedError("the sweep was asked to stop")
        first = slots[0]
        if len(slots) > 1:
            self._leave(slots)
            worker = self._team(slots, execution)
        else:
            worker = self.workers.get(first) or self.start(first, _log(execution, first), execution)
        with self._starting:
            self.workers[first] = worker
            if self._interrupted:
                worker.stop()
        return worker

    def _team(self, slots: Sequence[Slot], execution: Execution) -> Team:
        """The processes of one run, for it alone."""
        together = f"--processes={len(slots)}", f"--coordinator={self.coordinator(slots[0])}"
        started: list[Worker] = []
        try:
            for i, slot in enumerate(slots):
                joining = replace(slot, joining=(*together, f"--process={i}"))
                started.append(self.start(joining, _log(execution, slot), execution))
        except WorkerLost:
            Team(started).close()
            raise
        return Team(started)

    def _leave(self, slots: Sequence[Slot]) -> str:
        """Ends the workers in slots; how they ended."""
        with self._starting:
            left = [self.workers.pop(slot) for slot in slots if slot in self.workers]
        return Team(left).close()

    def _interrupt(self) -> None:
        with self._starting:
            self._interrupted = True
            for worker in self.workers.values():
                worker.stop()


def _log(execution: Execution, slot: Slot) -> Path:
    return Path(execution.runs) / "logs" / f"worker-{slot.name}.log"
