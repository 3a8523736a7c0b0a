"""A worker process: takes jobs as JSON lines on stdin, reports as JSON lines on stdout.

    {"runs": [{...}, ...], "execution": {...}, "fleet": true}
    ->  {"event": "progress", ...} ... {"event": "done", "statuses": {...}}
    {"runs": [...], "execution": {...}, "fleet": true, "measure": true}
    ->  {"event": "told", "tokens_per_second": ..., ...}

The runs of a fleet are trained side by side; one process takes many jobs, so start-up is paid
once. It saves and leaves when it is sent SIGTERM or when stdin closes, so it never outlives the
sweep that started it.
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

PATIENCE = 300  # seconds; the nodes of a run start one after another

EXIT_INTERRUPTED = 143


def main() -> int:
    """Serves jobs until stdin closes; exits 143 where a run was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bss.training.running.worker")
    parser.add_argument("--core", type=int, help="pin to this one of the cores it may use, from 0")
    parser.add_argument("--processes", type=int, default=1, help="how many train its runs together")
    parser.add_argument("--coordinator", default="", help="HOST:PORT of the first of them")
    parser.add_argument("--process", type=int, help="which one this is, from 0")
    options = parser.parse_args()
    if options.core is not None:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[options.core % len(cores)]})
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to the log, not between the answers
    warnings.simplefilter("always", RuntimeWarning)

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            jobs.put(line)
        stop.set()
        jobs.put(None)

    threading.Thread(target=read, daemon=True).start()
    if not options.coordinator:
        return _serve_all(jobs, answers, stop)
    from bss.training.devices.launch import STARTER, Joining, joined

    os.environ.pop(STARTER, None)  # of the sweep, not of this process
    place = options.processes, options.coordinator, options.process
    with joined(Joining(*place, patience=PATIENCE)):
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
    """Trains one job, or measures how fast it would; False where it was interrupted."""
    from bss.errors import InputError
    from bss.training.config import RunConfig
    from bss.training.execution import Execution, use_compilation_cache
    from bss.training.running.loop import Interrupted, train, train_fleet
    from bss.training.running.timing import told
    from bss.values import from_dict, to_dict

    def answer(event: str, **details: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the engine is gone: save before leaving
            answers.write(json.dumps({"event": event, **details}) + "\n")

    try:
        runs = [from_dict(RunConfig, run) for run in job["runs"]]
        execution = from_dict(Execution, job["execution"])
        use_compilation_cache(execution)
        if job.get("measure"):
            answer("told", **told(runs, execution, stop, fleet=job["fleet"]))
            return True
        watched = {"report": lambda progress: answer("progress", **progress), "stop": stop}
        if job["fleet"]:
            statuses = train_fleet(runs, execution, **watched)
        else:
            statuses = {run.id: train(run, execution, **watched) for run in runs}
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
