"""Engines by name, and the engine of this process.

Several processes that are connected train the runs one after another, each run in all of them.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any

from jax.sharding import Mesh

from bss.errors import InputError
from bss.registry import Registry
from bss.sweeps.cluster import RayEngine
from bss.sweeps.engine import Engine
from bss.sweeps.local import LocalEngine
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Statuses, skip
from bss.sweeps.setup import EngineConfig
from bss.sweeps.slurm import SlurmEngine
from bss.training.distributed import error_line, gather_text, is_multihost, log_primary
from bss.training.execution import Execution, use_compilation_cache
from bss.training.loop import Interrupted, train
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus
from bss.training.sharding import make_mesh

EXIT_TERMINATED = 143


class JointEngine(Engine):
    """Trains runs in this process, and in those that are connected to it."""

    @classmethod
    def find_devices(cls, config: EngineConfig) -> Mesh:
        """Return the devices of this process and those connected to it."""
        return make_mesh(config.devices, config.fsdp)

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """See `Engine.train`; SIGINT and SIGTERM save first."""
        statuses = Statuses()
        progress = progress or Progress("runs", quiet=True)
        use_compilation_cache(execution)
        for run in runs:
            progress.add(run.id, execution.plan(run).tokens - run.start)
        with _stopping() as stop, progress:
            for run in _order_parents_first(runs):
                if _lacks_parent(run, statuses):
                    assert run.parent
                    statuses[run.id] = skip(run.parent.run)
                else:
                    statuses[run.id] = _train_one(run, execution, progress, stop)
                progress.finish(run.id, statuses[run.id].status)
        return statuses


def _train_one(run: RunConfig, execution: Execution, progress: Progress, stop: Event) -> RunStatus:
    """Train a run in all processes; an error of it ends no other run."""

    def report(row: Mapping[str, Any]) -> None:
        progress.update(run.id, row["tokens"] - run.start)

    try:
        return train(run, execution, report=report, stop=stop)
    except (InputError, OSError) as error:
        # All processes are here: an error in one is raised in all before any goes on.
        told = gather_text(error_line(error))
        return RunStatus("failed", message=next(filter(None, told), ""))


def _order_parents_first(runs: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the runs in order, except that a parent comes before its branches."""
    by_id = {run.id: run for run in runs}
    ordered: dict[str, RunConfig] = {}
    for run in runs:
        line = [run]
        while (parent := line[-1].parent) and parent.run in by_id and parent.run not in ordered:
            line.append(by_id[parent.run])
        ordered |= {one.id: one for one in reversed(line)}
    return [*ordered.values()]


def _lacks_parent(run: RunConfig, statuses: Statuses) -> bool:
    """Return True if the parent of a run did not finish, as the first process sees it.

    On a network file system the others may not see yet how a run has ended.
    """
    if not run.parent or run.parent.run not in statuses:
        return False
    return gather_text("" if statuses[run.parent.run].finished else "lacking")[0] != ""


@contextlib.contextmanager
def _stopping() -> Iterator[Event]:
    """Give an event that SIGINT and SIGTERM set; they take effect once the runs are saved."""
    stop = Event()
    signals: list[int] = []

    def request_stop(number: int, _: object) -> None:
        signals.append(number)
        stop.set()

    # Of several processes, SIGTERM is the preemption signal, which JAX sends to all of them.
    numbers = (signal.SIGINT,) if is_multihost() else (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, request_stop) for n in numbers}
    try:
        yield stop
    except Interrupted as interrupted:
        log_primary(f"{interrupted}; run the same command to continue")
        if {*signals} == {signal.SIGINT}:
            raise KeyboardInterrupt from None
        sys.exit(EXIT_TERMINATED)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ENGINES: Registry[type[Engine]] = Registry(
    "engine", {"local": LocalEngine, "ray": RayEngine, "slurm": SlurmEngine}, type[Engine]
)


def engine_of(name: str) -> type[Engine]:
    """Return the engine of a name.

    Several processes that are connected train every run together, whatever the name.

    Raises:
        InputError: If the name is unknown.
    """
    engine = ENGINES.load(name)
    return JointEngine if is_multihost() else engine
