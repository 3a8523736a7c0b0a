"""The local engine: worker processes pinned to a core each, fed from one queue.

A branch waits for its parent. Finished runs are no-ops, a diverged run is recorded and the
sweep goes on; an interrupt saves every run and leaves. Two pinned one-core processes train
small models faster than one process on two cores.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bss.sweeps.progress import Progress
from bss.training.config import RunConfig
from bss.training.directory import read_status, run_path
from bss.training.execution import Execution
from bss.training.loop import is_done
from bss.training.status import RunStatus
from bss.values import from_dict, to_dict

_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GRACE_SECONDS = 60


class LocalEngine:
    """Trains runs on this machine with a few worker processes, kept from sweep to sweep."""

    def __init__(self, workers: int = 0, *, pin: bool = True):
        """Starts nothing yet.

        Args:
            workers: processes; 0 means one per core this process may use.
            pin: give each worker a core of its own; off where they share an accelerator.
        """
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.workers = workers or len(cores) or 1
        self._cores = cores if pin and cores else None
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._starting = threading.Lock()
        self._interrupted = False

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> dict[str, RunStatus]:
        """Trains all runs; returns each run's final status by id.

        A run whose parent did not finish has the status "skipped"; one whose worker died or
        that was refused has "failed" and a message.
        """
        self._interrupted = False
        progress = progress or Progress("runs", quiet=True)
        statuses: dict[str, RunStatus] = {}

        def finish(run: RunConfig, status: RunStatus) -> None:
            statuses[run.id] = status
            progress.finish(run.id, status.status)

        for run in runs:
            plan = execution.plan(run)
            progress.add(run.id, plan.tokens - run.start)
            if is_done(run, plan, execution):
                finish(run, read_status(run_path(execution.runs, run)))
        waiting, asked = [run for run in runs if run.id not in statuses], {run.id for run in runs}
        slots = list(range(self.workers))
        training: dict[Future[RunStatus], tuple[int, RunConfig]] = {}
        with progress, ThreadPoolExecutor(self.workers) as pool:
            try:
                while waiting or training:
                    for run in tuple(waiting):
                        parent = run.parent.run if run.parent else None
                        if parent in asked and parent not in statuses:
                            continue
                        if parent in asked and not statuses[parent].finished:
                            waiting.remove(run)
                            finish(run, RunStatus("skipped", message=f"{parent} failed"))
                        elif slots:
                            waiting.remove(run)
                            slot = slots.pop(0)
                            future = pool.submit(self._train_one, slot, run, execution, progress)
                            training[future] = slot, run
                    for future in wait(training, return_when=FIRST_COMPLETED).done:
                        slot, run = training.pop(future)
                        slots.append(slot)
                        finish(run, _outcome(future))
            except BaseException:
                self._interrupt()
                raise
        return statuses

    def close(self) -> None:
        """Ends the workers."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(_end, self._processes.values()))
        self._processes.clear()

    def _train_one(
        self, slot: int, run: RunConfig, execution: Execution, progress: Progress
    ) -> RunStatus:
        log = Path(execution.runs) / "logs" / f"worker-{slot}.log"
        process = self._worker(slot, log)
        assert process.stdin
        assert process.stdout
        status = RunStatus("failed", message=f"worker {slot} died; see {log}")
        with contextlib.suppress(BrokenPipeError):
            job = {"run": to_dict(run), "execution": asdict(execution)}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                event = answer.pop("event")
                if event == "progress":
                    progress.update(answer["run"], answer["tokens"] - run.start)
                elif event == "done":
                    return from_dict(RunStatus, answer["status"], strict=False)
                elif event == "interrupted":
                    status = RunStatus("interrupted")
                    break
                else:
                    return RunStatus("failed", message=answer["message"])
        with self._starting:
            del self._processes[slot]
        _end(process)
        return status

    def _worker(self, slot: int, log: Path) -> subprocess.Popen[str]:
        with self._starting:
            if self._interrupted:
                raise InterruptedError("the sweep was asked to stop")
            if slot not in self._processes:
                self._processes[slot] = self._start(slot, log)
            return self._processes[slot]

    def _start(self, slot: int, log: Path) -> subprocess.Popen[str]:
        log.parent.mkdir(parents=True, exist_ok=True)
        pin = [f"--core={self._cores[slot % len(self._cores)]}"] if self._cores else []
        with open(log, "a") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "bss.training.worker", *pin],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**_ENVIRONMENT, **os.environ},
                start_new_session=True,  # an interrupt reaches the engine, which passes it on
            )

    def _interrupt(self) -> None:
        with self._starting:
            self._interrupted = True
            for process in self._processes.values():
                process.terminate()


def _outcome(future: Future[RunStatus]) -> RunStatus:
    """What became of a run; an error of the engine itself is told too, others may wait for it."""
    if error := future.exception():
        return RunStatus("failed", message=f"{type(error).__name__}: {error}")
    return future.result()


def _end(process: subprocess.Popen[str]) -> None:
    """Closes the pipe, the signal to save and leave, and waits."""
    try:
        process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
