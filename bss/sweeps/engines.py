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

from bss.machines.slots import Slot, cores, local_slots
from bss.registry import Registry
from bss.sweeps.choice import Choice, Chooser, Machine, read_choices, write_choices
from bss.sweeps.cluster import RayEngine
from bss.sweeps.engine import Engine, WorkerEngine
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Statuses
from bss.sweeps.setup import EngineConfig
from bss.sweeps.slurm import FilesEngine
from bss.sweeps.workers import WorkerProcess
from bss.training.config import RunConfig
from bss.training.devices.processes import say
from bss.training.devices.starter import free_port
from bss.training.execution import Execution, use_compilation_cache
from bss.training.running.loop import Interrupted, train
from bss.values import from_dict

EXIT_TERMINATED = 143
_ALL_CORES = Slot("all")


class LocalEngine(WorkerEngine):
    """Trains runs on this machine, by worker processes in a slot each."""

    def __init__(self, config: EngineConfig):
        """Finds its slots; InputError where the machine has too few devices."""
        super().__init__(config)
        self._every = local_slots(config.workers, config.devices, pin=config.pin, least=config.fsdp)
        self._slots: Sequence[Slot] = self._every
        self._said = set[str]()

    def slots(self) -> Sequence[Slot]:
        """Those there were at the start, or one on all cores."""
        return self._slots

    def fleets(
        self, runs: Sequence[RunConfig], waiting: Sequence[RunConfig], execution: Execution
    ) -> dict[str, int]:
        """As the config asks, else as was measured; then one worker may have all cores, too."""
        config, slots = self.config, self._every
        self._use(slots)
        asked = super().fleets(runs, waiting, execution)
        if config.fleet or not waiting or str(config.processes) != "1" or config.fsdp > 1:
            return asked
        whole = not config.workers and len(slots) > 1 and slots[0].core is not None
        few = len(runs) < len(slots)
        chooser = Chooser(waiting, execution, len(slots), whole=whole, few=few)
        busy = slots[: len(waiting)]
        if not chooser.is_open() or not all(
            facts := self.measured(busy, [], execution, fleet=False)
        ):
            return asked
        own = {**facts[0], "cores": cores(), "workers": len(slots)}
        machine = from_dict(Machine, own, strict=False)

        def measure(runs: Sequence[RunConfig], way: Choice) -> float:
            places, fleet = [_ALL_CORES] if way.whole else busy, way.fleet > 1
            told = self.measured(places, runs, execution, fleet=fleet)
            return sum(one["tokens_per_second"] for one in told) if all(told) else 0.0

        choices = chooser.choices(machine, read_choices(execution.runs), measure)
        write_choices(execution.runs, choices)
        for text in dict.fromkeys(map(str, choices.values())):
            if text not in self._said:
                say(text)
            self._said.add(text)
        self._use([_ALL_CORES] if next(iter(choices.values())).whole else slots)
        return {
            run.id: choices[shape].fleet for shape, of in chooser.by_shape.items() for run in of
        }

    def _use(self, slots: Sequence[Slot]) -> None:
        """From now on workers are in these slots, and in no others."""
        self._slots = slots
        self._leave([slot for slot in self.workers if slot not in slots])

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

    before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    except Interrupted:
        if terminated.is_set():
            sys.exit(EXIT_TERMINATED)
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ENGINES: Registry[type[Engine]] = Registry(
    "engine", {"local": LocalEngine, "ray": RayEngine, "files": FilesEngine}, type[Engine]
)
