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
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bss.sweeps.progress import Progress
from bss.training.config import RunConfig
from bss.training.directory import read_status, run_path
from bss.training.execution import Execution
from bss.training.fleet import fleet_key
from bss.training.loop import is_done
from bss.training.status import RunStatus
from bss.values import from_dict, to_dict

Statuses = dict[str, RunStatus]
"""What became of runs, by id."""

_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_GRACE_SECONDS = 60


class LocalEngine:
    """Trains runs on this machine with a few worker processes, kept from sweep to sweep."""

    def __init__(self, workers: int = 0, *, pin: bool = True, fleet: int = 1):
        """Starts nothing yet.

        Args:
            workers: processes; 0 means one per core this process may use.
            pin: give each worker a core of its own; off where they share an accelerator.
            fleet: how many runs of one shape a worker trains side by side, at most.
        """
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.workers, self.fleet = workers or len(cores) or 1, fleet
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
        waiting = [run for run in runs if run.id not in statuses]
        keys = {run.id: fleet_key(run, execution) for run in waiting} if self.fleet > 1 else {}
        slots = list(range(self.workers))
        training: dict[Future[Statuses], tuple[int, list[RunConfig]]] = {}
        with progress, ThreadPoolExecutor(self.workers) as pool:
            try:
                while waiting or training:
                    for run in tuple(waiting):
                        parent = run.parent.run if run.parent else None
                        if parent in statuses and not statuses[parent].finished:
                            waiting.remove(run)
                            finish(run, RunStatus("skipped", message=f"{parent} failed"))
                    pending = {run.id for run in runs} - statuses.keys()
                    ready = [r for r in waiting if not (r.parent and r.parent.run in pending)]
                    for group in self._groups(ready, keys)[: len(slots)]:
                        for run in group:
                            waiting.remove(run)
                        slot = slots.pop(0)
                        fleet = keys.get(group[0].id) is not None
                        job = slot, group, fleet, execution, progress
                        future = pool.submit(self._train_some, *job)
                        training[future] = slot, group
                    for future in wait(training, return_when=FIRST_COMPLETED).done:
                        slot, group = training.pop(future)
                        slots.append(slot)
                        outcomes = _outcomes(future, group)
                        for run in group:
                            finish(run, outcomes[run.id])
            except BaseException:
                self._interrupt()
                raise
        return statuses

    def close(self) -> None:
        """Ends the workers."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(_end, self._processes.values()))
        self._processes.clear()

    def _groups(
        self, runs: Sequence[RunConfig], keys: Mapping[str, Hashable]
    ) -> list[list[RunConfig]]:
        """Runs that are trained side by side, in the order of the first of each."""
        groups: list[list[RunConfig]] = []
        open_groups: dict[Hashable, list[RunConfig]] = {}
        for run in runs:
            key = keys.get(run.id)
            group = open_groups.get(key, []) if key is not None else []
            if not 0 < len(group) < self.fleet:
                groups.append(group := [])
                open_groups[key] = group
            group.append(run)
        return groups

    def _train_some(
        self,
        slot: int,
        runs: Sequence[RunConfig],
        fleet: bool,
        execution: Execution,
        progress: Progress,
    ) -> Statuses:
        log = Path(execution.runs) / "logs" / f"worker-{slot}.log"
        process = self._worker(slot, log)
        assert process.stdin
        assert process.stdout
        starts = {run.id: run.start for run in runs}
        status = RunStatus("failed", message=f"worker {slot} died; see {log}")
        with contextlib.suppress(BrokenPipeError):
            job = {"runs": [to_dict(run) for run in runs], "execution": asdict(execution)}
            job["fleet"] = fleet
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                event = answer.pop("event")
                if event == "progress":
                    progress.update(answer["run"], answer["tokens"] - starts[answer["run"]])
                elif event == "done":
                    told = answer["statuses"].items()
                    return {run: from_dict(RunStatus, one, strict=False) for run, one in told}
                elif event == "interrupted":
                    status = RunStatus("interrupted")
                    break
                else:
                    return dict.fromkeys(starts, RunStatus("failed", message=answer["message"]))
        with self._starting:
            del self._processes[slot]
        _end(process)
        return dict.fromkeys(starts, status)

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


def _outcomes(future: Future[Statuses], runs: Sequence[RunConfig]) -> Statuses:
    """What became of runs; an error of the engine itself is told too, others may wait for them."""
    if error := future.exception():
        failed = RunStatus("failed", message=f"{type(error).__name__}: {error}")
        return {run.id: failed for run in runs}
    return future.result()


def _end(process: subprocess.Popen[str]) -> None:
    """Closes the pipe, the signal to save and leave, and waits."""
    try:
        process.communicate(timeout=_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
