"""Engines by name: what trains the runs of a sweep, and where; this machine's own two are here.

The local one has worker processes: two pinned one-core ones train small models faster than one on
two cores. Several processes that have joined train one run after another, all of them each.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from bss.registry import Registry
from bss.sweeps.cluster import RayEngine
from bss.sweeps.engine import Engine, WorkerEngine
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Statuses
from bss.sweeps.setup import EngineConfig
from bss.sweeps.slurm import FilesEngine
from bss.sweeps.workers import WorkerProcess, free_port
from bss.training.distributed import is_multihost
from bss.training.execution import Execution, use_compilation_cache
from bss.training.hardware import Slot, has_accelerators, local_slots
from bss.training.loop import Interrupted, train
from bss.training.run_config import RunConfig

EXIT_TERMINATED = 143
SMALL_MODEL = 1_000_000
"""Parameters below which runs share a program on an accelerator."""
VMAPPED_RUNS = 64
"""How many of them do."""


def vmapped_runs(run: RunConfig) -> int:
    """Return how many runs of this model share a program on an accelerator."""
    return VMAPPED_RUNS if run.model.counts().total < SMALL_MODEL else 1


class LocalEngine(WorkerEngine):
    """Trains runs on this machine, by worker processes in a slot each."""

    def __init__(self, config: EngineConfig):
        """Finds its slots; InputError where the machine has too few devices."""
        super().__init__(config)
        self._slots = local_slots(config.workers, config.devices, pin=config.pin, least=config.fsdp)

    def slots(self) -> Sequence[Slot]:
        """Those there were at the start."""
        return self._slots

    def fleets(
        self, runs: Sequence[RunConfig], waiting: Sequence[RunConfig], execution: Execution
    ) -> dict[str, int]:
        """Return how many runs share a program, by id of each waiting run.

        As `fleet` says; else small models share one on an accelerator, which they do not fill.
        """
        config = self.config
        alone = str(config.processes) != "1" or config.fsdp > 1 or config.devices > 1
        if config.fleet or alone or not has_accelerators():
            return super().fleets(runs, waiting, execution)
        return {run.id: vmapped_runs(run) for run in waiting}

    def start(self, slot: Slot, log: Path, execution: Execution) -> WorkerProcess:
        """Starts a worker process."""
        return WorkerProcess(slot, log)

    def coordinator(self, slot: Slot) -> str:
        """A port of this machine alone."""
        return f"127.0.0.1:{free_port('127.0.0.1')}"


class JointEngine(Engine):
    """Trains runs in this process, together with those that it has joined."""

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """See `Engine.train`; SIGINT and SIGTERM save first."""
        with _stopping() as stop:
            return train_each(runs, execution, progress or Progress("runs", quiet=True), stop)


def train_each(
    runs: Sequence[RunConfig], execution: Execution, progress: Progress, stop: Event
) -> Statuses:
    """Trains runs in this process, one after another; Interrupted once `stop` is set."""
    statuses = Statuses()
    use_compilation_cache(execution)
    for run in runs:
        progress.add(run.id, execution.plan(run).tokens - run.start)
    with progress:
        for run in runs:

            def report(row: dict, run: RunConfig = run) -> None:
                progress.update(run.id, row["tokens"] - run.start)

            statuses[run.id] = train(run, execution, report=report, stop=stop)
            progress.finish(run.id, statuses[run.id].status)
    return statuses


@contextlib.contextmanager
def _stopping() -> Iterator[Event]:
    """An event that SIGINT and SIGTERM set; what they do comes once the runs are saved."""
    stop, terminated = Event(), Event()

    def ask(number: int, _: object) -> None:
        stop.set()
        if number == signal.SIGTERM:
            terminated.set()

    # Of several processes, SIGTERM is the preemption signal, which JAX sends to all of them.
    numbers = (signal.SIGINT,) if is_multihost() else (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, ask) for n in numbers}
    try:
        yield stop
    except Interrupted:
        if terminated.is_set() or not stop.is_set():
            sys.exit(EXIT_TERMINATED)
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ENGINES: Registry[type[Engine]] = Registry(
    "engine", {"local": LocalEngine, "ray": RayEngine, "files": FilesEngine}, type[Engine]
)
