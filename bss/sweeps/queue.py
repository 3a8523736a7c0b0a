"""The queue of a sweep: which runs are trained next, and the statuses of those that have ended.

A run waits for its parent. The longest runs go first, measured by the FLOPs of a run and of the
forked runs that wait for it. This avoids a long run at the end while other workers are idle.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from bss.sweeps.price import price
from bss.sweeps.progress import Progress
from bss.training.execution import Execution
from bss.training.loop import is_done
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus, read_status, run_path
from bss.training.vmapped import vmap_key

Statuses = dict[str, RunStatus]
"""Statuses of runs, by id."""


class Queue:
    """The runs of a sweep that are not trained yet.

    Attributes:
        statuses: Statuses of the runs that have ended.
        waiting: runs to be trained, the longest first; a parent before its branches.
    """

    def __init__(
        self,
        runs: Sequence[RunConfig],
        execution: Execution,
        progress: Progress,
        runs_per_program: Callable[[RunConfig], int] = lambda run: 1,
    ):
        """Find the runs that have ended before.

        Args:
            runs: distinct runs.
            execution: Devices, directory and kernels of the runs.
            progress: shows every run.
            runs_per_program: Number of runs like a given one that share a program.
        """
        self.statuses: Statuses = {}
        self._progress, self._lost = progress, Counter[str]()
        for run in runs:
            plan = execution.plan(run)
            progress.add(run.id, plan.tokens - run.start)
            if is_done(run, execution):
                self.finish(run, read_status(run_path(execution.runs, run)))
        left = [run for run in runs if run.id not in self.statuses]
        self._lengths = lengths(left)
        self._pending = {run.id for run in left}
        self.waiting = self._sorted(left)
        self._most = {run.id: runs_per_program(run) for run in left}
        several = [run for run in left if self._most[run.id] > 1]
        self._keys = {run.id: vmap_key(run, execution) for run in several}

    def finish(self, run: RunConfig, status: RunStatus) -> None:
        """Record that a run has ended."""
        self.statuses[run.id] = status
        self._progress.finish(run.id, status.status)

    def take(self, workers: int | None) -> list[list[RunConfig]]:
        """Return the groups of runs that are trained now, at most one per worker.

        Waiting runs whose parents did not finish are skipped.

        Args:
            workers: number of workers without work, among which runs are divided; None: no limit.
        """
        for run in tuple(self.waiting):  # a parent is before its branches
            parent = run.parent.run if run.parent else None
            if parent in self.statuses and not self.statuses[parent].finished:
                self.waiting.remove(run)
                self.finish(run, RunStatus("skipped", message=f"{parent} failed"))
        pending = self._pending - self.statuses.keys()
        ready = [run for run in self.waiting if not (run.parent and run.parent.run in pending)]
        share = len(ready) if workers is None else math.ceil(len(ready) / (workers or 1))
        most = {run.id: min(share, self._most[run.id]) for run in ready}
        groups = _groups(ready, self._keys, most)[:workers]
        for run in (run for group in groups for run in group):
            self.waiting.remove(run)
        return groups

    def is_vmapped(self, group: Sequence[RunConfig]) -> bool:
        """Return True if a group is trained in one program."""
        return self._keys.get(group[0].id) is not None

    def lose(self, group: Sequence[RunConfig], message: str, retries: int) -> None:
        """Queue the runs of a lost worker again, except those that were lost `retries` times."""
        for run in group:
            self._lost[run.id] += 1
            if self._lost[run.id] > retries:
                self.finish(run, RunStatus("failed", message=message))
                continue
            self.waiting = self._sorted([*self.waiting, run])
            again = f"trying again ({self._lost[run.id]} of {retries})"
            warnings.warn(f"run {run.id}: {message}; {again}", RuntimeWarning, stacklevel=2)

    def _sorted(self, runs: Sequence[RunConfig]) -> list[RunConfig]:
        return sorted(runs, key=lambda run: -self._lengths[run.id])


def lengths(runs: Sequence[RunConfig]) -> dict[str, float]:
    """Return the FLOPs of each run plus its longest chain of branches, by id."""
    branches: dict[str, list[RunConfig]] = {}
    for run in runs:
        if run.parent:
            branches.setdefault(run.parent.run, []).append(run)
    known: dict[str, float] = {}

    def length(run: RunConfig) -> float:
        if run.id not in known:
            after = max(map(length, branches.get(run.id, ())), default=0.0)
            known[run.id] = price([run]).flops + after
        return known[run.id]

    return {run.id: length(run) for run in runs}


def _groups(
    runs: Sequence[RunConfig], keys: Mapping[str, Hashable], most: Mapping[str, int]
) -> list[list[RunConfig]]:
    """Return the runs in groups that share a program, in the order of the first of each."""
    groups: list[list[RunConfig]] = []
    open_groups: dict[Hashable, list[RunConfig]] = {}
    for run in runs:
        key = keys.get(run.id)
        group = open_groups.get(key, []) if key is not None else []
        if not 0 < len(group) < most[run.id]:
            groups.append(group := [])
            open_groups[key] = group
        group.append(run)
    return groups
