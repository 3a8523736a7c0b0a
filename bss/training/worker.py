"""A worker process: it reads jobs as JSON lines from stdin and writes events as lines to stdout.

    {"runs": [{...}, ...], "execution": {...}, "fleet": true}
    ->  {"event": "progress", ...} ... {"event": "done", "statuses": {...}}

With "fleet" the runs are trained in one program. One process takes many jobs, so that it starts
once. It saves and exits at SIGTERM or when stdin closes, so that it never outlives its sweep.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import warnings
from typing import Any

INIT_TIMEOUT = 300  # seconds; the nodes of a run start one after another
EXIT_INTERRUPTED = 143


def main() -> int:
    """Serve jobs until stdin closes; return 143 if a run was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bss.training.worker")
    parser.add_argument("--core", type=int, help="index of the core to pin to, of those it may use")
    parser.add_argument("--processes", type=int, default=1, help="processes that train each run")
    parser.add_argument("--coordinator", default="", help="HOST:PORT of process 0")
    parser.add_argument("--process", type=int, help="index of this process")
    options = parser.parse_args()
    if options.core is not None:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[options.core % len(cores)]})
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to the log
    warnings.simplefilter("always", RuntimeWarning)

    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            jobs.put(line)
        stop.set()
        jobs.put(None)

    threading.Thread(target=read, daemon=True).start()
    if not options.coordinator:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        return _serve_all(jobs, answers, stop)
    from bss.training.distributed import DistributedConfig, initialized

    place = options.processes, options.coordinator, options.process
    with initialized(DistributedConfig(*place, init_timeout=INIT_TIMEOUT)):
        return _serve_all(jobs, answers, stop)


def _serve_all(jobs: "queue.Queue[str | None]", answers: Any, stop: threading.Event) -> int:
    while not stop.is_set():
        try:
            line = jobs.get(timeout=0.2)
        except queue.Empty:
            continue
        if line is None:
            break
        if not _serve(json.loads(line), answers, stop):
            return EXIT_INTERRUPTED
    return 0


def _serve(job: dict[str, Any], answers: Any, stop: threading.Event) -> bool:
    """Train the runs of a job; return False if they were interrupted."""
    from bss.errors import InputError
    from bss.training.execution import Execution, use_compilation_cache
    from bss.training.loop import Interrupted, train, train_vmapped
    from bss.training.run_config import RunConfig
    from bss.values import from_dict, to_dict

    def answer(event: str, **details: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the engine is gone: save before leaving
            answers.write(json.dumps({"event": event, **details}) + "\n")

    def report(progress: dict[str, Any]) -> None:
        answer("progress", **progress)

    try:
        runs = [from_dict(RunConfig, run) for run in job["runs"]]
        execution = from_dict(Execution, job["execution"])
        use_compilation_cache(execution)
        if job["fleet"]:
            statuses = train_vmapped(runs, execution, report=report, stop=stop)
        else:
            statuses = {run.id: train(run, execution, report=report, stop=stop) for run in runs}
    except Interrupted:
        answer("interrupted")
        return False
    except (InputError, OSError) as error:
        answer("failed", message=str(error))
        return True
    answer("done", statuses={run: to_dict(status) for run, status in statuses.items()})
    return True


if __name__ == "__main__":
    sys.exit(main())
