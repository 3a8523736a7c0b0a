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
from concurrent.futures import ThreadPoolExecutor
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
        queue = _Queue(runs, execution, progress or Progress("runs", quiet=True))
        with queue.progress, ThreadPoolExecutor(self.workers) as pool:
            slots = range(min(self.workers, len(runs)))
            serving = [pool.submit(self._serve, slot, queue) for slot in slots]
            try:
                for served in serving:
                    served.result()
            except BaseException:
                queue.stop()
                self._interrupt()
                raise
        return queue.statuses

    def close(self) -> None:
        """Ends the workers."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(_end, self._processes.values()))
        self._processes.clear()

    def _serve(self, slot: int, queue: "_Queue") -> None:
        while (run := queue.take()) is not None:
            try:
                status = self._train_one(slot, run, queue)
            except Exception as error:  # told as the run's status: others may wait for it
                status = RunStatus("failed", message=f"{type(error).__name__}: {error}")
            queue.finish(run, status)

    def _train_one(self, slot: int, run: RunConfig, queue: "_Queue") -> RunStatus:
        log = Path(queue.execution.runs) / "logs" / f"worker-{slot}.log"
        process = self._worker(slot, log)
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(BrokenPipeError):
            job = {"run": to_dict(run), "execution": asdict(queue.execution)}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                event = answer.pop("event")
                if event == "progress":
                    queue.progress.update(answer["run"], answer["tokens"] - run.start)
                elif event == "done":
                    return from_dict(RunStatus, answer["status"], strict=False)
                elif event == "interrupted":
                    self._end_worker(slot)
                    return RunStatus("interrupted")
                else:
                    return RunStatus("failed", message=answer["message"])
        self._end_worker(slot)
        return RunStatus("failed", message=f"worker {slot} died; see {log}")

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

    def _end_worker(self, slot: int) -> None:
        with self._starting:
            process = self._processes.pop(slot)
        _end(process)


class _Queue:
    """Runs to train, parents before their branches; shared by the engine's threads."""

    def __init__(self, runs: Sequence[RunConfig], execution: Execution, progress: Progress):
        self.statuses: dict[str, RunStatus] = {}
        self.execution, self.progress = execution, progress
        self._waiting: list[RunConfig] = []
        self._changed = threading.Condition()
        self._ids = {run.id for run in runs}
        for run in runs:
            plan = execution.plan(run)
            progress.add(run.id, plan.tokens - run.start)
            if is_done(run, plan, execution):
                self.finish(run, read_status(run_path(execution.runs, run)))
            else:
                self._waiting.append(run)

    def take(self) -> RunConfig | None:
        """The next run whose parent is done; waits for one, None when nothing is left."""
        with self._changed:
            while self._waiting:
                for run in self._waiting:
                    parent = run.parent.run if run.parent else None
                    if parent not in self._ids or parent in self.statuses:
                        self._waiting.remove(run)
                        if parent not in self._ids or self.statuses[parent].finished:
                            return run
                        self.finish(run, RunStatus("skipped", message=f"{parent} failed"))
                        break
                else:
                    self._changed.wait()
            return None

    def finish(self, run: RunConfig, status: RunStatus) -> None:
        """Records a run's status and wakes the threads that wait for it."""
        with self._changed:
            self.statuses[run.id] = status
            self.progress.finish(run.id, status.status)
            self._changed.notify_all()

    def stop(self) -> None:
        """Hands out no more runs."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()


def _end(process: subprocess.Popen[str]) -> None:
    """Closes the pipe, the signal to save and leave, and waits."""
    try:
        process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
