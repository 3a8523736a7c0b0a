"""The engine of several processes: they train one run after another, all of them each."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from threading import Event

from bss.sweeps.engine import Engine
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Statuses
from bss.sweeps.setup import EngineConfig
from bss.training.config import RunConfig
from bss.training.execution import Execution, use_compilation_cache
from bss.training.loop import Interrupted, train

EXIT_TERMINATED = 143


class JointEngine(Engine):
    """Trains runs in this process, together with those that it has joined."""

    @classmethod
    def of(cls, config: EngineConfig) -> "JointEngine":
        """The same for every config."""
        del config
        return cls()

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """See `Engine.train`; SIGINT and SIGTERM save first."""
        progress, statuses = progress or Progress("runs", quiet=True), Statuses()
        use_compilation_cache(execution)
        for run in runs:
            progress.add(run.id, execution.plan(run).tokens - run.start)
        with progress, _stopping() as stop:
            for run in runs:

                def report(told: dict, run: RunConfig = run) -> None:
                    progress.update(run.id, told["tokens"] - run.start)

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
