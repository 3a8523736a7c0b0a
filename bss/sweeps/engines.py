"""Engines by name, and the engine of this process.

Several processes that are connected train the runs one after another, each run in all of them.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from threading import Event

from bss.registry import Registry
from bss.sweeps.cluster import RayEngine
from bss.sweeps.engine import Engine, Statuses
from bss.sweeps.local import LocalEngine
from bss.sweeps.progress import Progress
from bss.sweeps.slurm import SlurmEngine
from bss.training.distributed import is_multihost, log_primary
from bss.training.execution import Execution, use_compilation_cache
from bss.training.loop import Interrupted, train
from bss.training.run_config import RunConfig

EXIT_TERMINATED = 143


class JointEngine(Engine):
    """Trains runs in this process, and in those that are connected to it."""

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """See `Engine.train`; SIGINT and SIGTERM save first."""
        statuses, progress = Statuses(), progress or Progress("runs", quiet=True)
        use_compilation_cache(execution)
        for run in runs:
            progress.add(run.id, execution.plan(run).tokens - run.start)
        with _stopping() as stop, progress:
            for run in runs:

                def report(row: dict, run: RunConfig = run) -> None:
                    progress.update(run.id, row["tokens"] - run.start)

                statuses[run.id] = train(run, execution, report=report, stop=stop)
                progress.finish(run.id, statuses[run.id].status)
        return statuses


@contextlib.contextmanager
def _stopping() -> Iterator[Event]:
    """Give an event that SIGINT and SIGTERM set; they take effect once the runs are saved."""
    stop, signals = Event(), list[int]()

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
