"""Engines whose workers are in slots: the device groups of one or more machines."""

import threading
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bss.errors import check
from bss.sweeps.engine import QueueEngine, WorkerLost
from bss.sweeps.setup import EngineConfig
from bss.training.hardware import Slot
from bss.training.worker import Job


class SlotEngine(QueueEngine):
    """An engine with one persistent worker per slot.

    A worker has three methods. `train` returns the result of a job or raises WorkerLost, `stop`
    requests that the worker saves and ends, and `close` waits until it has ended.

    Attributes:
        workers: the workers that were started, by slot.
    """

    def __init__(self, config: EngineConfig):
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
