"""A worker: it trains one job after another, in a process that an engine starts.

A job is {"runs": {ID: {...}, ...}, "execution": {...}, "vmapped": true}: its runs are trained one
after another, or, with "vmapped", in one program. Its result is "" or an error message; statuses
and curves are in the run directories.

`python -m bss.training.worker` reads jobs as JSON lines from stdin and writes results as JSON lines
to stdout. It saves and exits at SIGTERM, or when stdin closes, so that it ends with its sweep.
JAX is not imported with this module, so that environment variables can be set before.
"""

import argparse
import contextlib
import gc
import json
import os
import queue
import signal
import sys
import threading
import warnings
from typing import Any

from bss.errors import InputError
from bss.training.allocator import keep_freed_memory
from bss.training.hardware import memory_environment

Job = dict[str, Any]

EXIT_INTERRUPTED = 143
_LOCK_SECONDS = 0.5


def train_job(job: Job, stop: threading.Event) -> str:
    """Train the runs of a job; a run that another process trains is waited for.

    Returns:
        "", or the message of the error for which the runs are not trained.

    Raises:
        Interrupted: After saving, if `stop` is set.
    """
    os.environ.update(memory_environment())
    from bss.training.distributed import gather_text
    from bss.training.execution import Execution, use_compilation_cache
    from bss.training.loop import Interrupted, train, train_vmapped
    from bss.training.run_config import RunConfig
    from bss.training.run_directory import is_being_written, run_path
    from bss.values import from_dict

    try:
        runs = [from_dict(RunConfig, run) for run in job["runs"].values()]
        execution = from_dict(Execution, job["execution"])
    except InputError as error:
        return str(error)
    use_compilation_cache(execution)
    while not stop.is_set():
        try:
            if job["vmapped"]:
                train_vmapped(runs, execution, stop=stop)
            else:
                for run in runs:
                    train(run, execution, stop=stop)
            return ""
        except (InputError, OSError) as error:
            locked = any(is_being_written(run_path(execution.runs, run)) for run in runs)
            if not any(gather_text("locked" if locked else "")):
                return str(error)
        stop.wait(_LOCK_SECONDS)
    raise Interrupted("stopped while another process writes a run")


def pin(core: int | None) -> None:
    """Pin this thread, and the threads that it starts, to one of the cores it may use."""
    if core is not None:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


class ActorWorker:
    """A worker as an actor of Ray, whose calls come in threads."""

    def __init__(
        self, directory: str, log: str, core: int | None, environment: dict[str, str]
    ) -> None:
        os.chdir(directory)
        os.environ.update(environment)
        with open(log, "a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        warnings.simplefilter("always", RuntimeWarning)
        self._core = core
        self._stop = threading.Event()

    def train(self, job: Job) -> str | None:
        """Return the result of a job; None if it was interrupted."""
        from bss.training.distributed import Interrupted

        pin(self._core)
        try:
            return train_job(job, self._stop)
        except Interrupted:
            return None

    def stop(self) -> None:
        """Save the runs and stop training."""
        self._stop.set()


def main() -> int:
    """Serve jobs until stdin closes; return 143 if a run was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bss.training.worker")
    parser.add_argument("--core", type=int, help="index of the core to pin to, of those it may use")
    pin(parser.parse_args().core)
    keep_freed_memory()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to the log
    warnings.simplefilter("always", RuntimeWarning)

    stop = threading.Event()
    jobs = queue.SimpleQueue[str | None]()

    def end(*_: Any) -> None:
        stop.set()
        jobs.put(None)

    def read() -> None:
        for line in sys.stdin:
            jobs.put(line)
        end()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=read, daemon=True).start()
    gc.disable()  # while modules are imported
    from bss.training.loop import Interrupted

    gc.freeze()  # they stay until the end, so the collector need not visit them
    gc.enable()
    for line in iter(jobs.get, None):
        try:
            result = train_job(json.loads(line), stop)
        except Interrupted:
            return EXIT_INTERRUPTED
        with contextlib.suppress(BrokenPipeError):  # the engine has ended
            answers.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
