"""The runs of a sweep in the order in which they are trained, and what became of them.

A run waits for its parent. The longest go first, by the FLOPs of a run and of the branches that
wait for it, so that no slot is left with a long one while the others idle.
"""

import math
import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from bss.sweeps.price import price
from bss.sweeps.progress import Progress
from bss.training.execution import Execution
from bss.training.loop import is_done
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus, read_status, run_path
from bss.training.vmapped import vmap_key

Statuses = dict[str, RunStatus]
"""What became of runs, by id."""


class Queue:
    """The runs that are left of a sweep.

    Attributes:
        statuses: of the runs that have ended.
        waiting: those to be trained, the longest first; a parent before its branches.
    """

    def __init__(self, runs: Sequence[RunConfig], execution: Execution, progress: Progress):
        """Finds what is done already.

        Args:
            runs: distinct ones.
            execution: where and how they are trained.
            progress: is told of every run.
        """
        self.statuses: Statuses = {}
        self._progress, self._execution = progress, execution
        self._lost: Counter[str] = Counter()
        for run in runs:
            plan = execution.plan(run)
            progress.add(run.id, plan.tokens - run.start)
            if is_done(run, execution):
                self.finish(run, read_status(run_path(execution.runs, run)))
        left = [run for run in runs if run.id not in self.statuses]
        self._lengths = lengths(left)
        self._pending = {run.id for run in left}
        self.waiting = self._sorted(left)
        self._most: Mapping[str, int] = {}
        self._keys: dict[str, Hashable] = {}

    def together(self, most: Mapping[str, int]) -> None:
        """So many runs of one shape are taken together, at most, by the id of each; else one."""
        self._most = most
        several = [run for run in self.waiting if most[run.id] > 1]
        self._keys = {run.id: vmap_key(run, self._execution) for run in several}

    def finish(self, run: RunConfig, status: RunStatus) -> None:
        """A run has ended."""
        self.statuses[run.id] = status
        self._progress.finish(run.id, status.status)

    def skip(self) -> None:
        """Ends the waiting runs whose parents ended before their stop."""
        for run in tuple(self.waiting):  # a parent is before its branches
            parent = run.parent.run if run.parent else None
            if parent in self.statuses and not self.statuses[parent].finished:
                self.waiting.remove(run)
                self.finish(run, RunStatus("skipped", message=f"{parent} failed"))

    def take(self, slots: int) -> list[list[RunConfig]]:
        """What so many slots are to train now, in groups that go side by side."""
        self.skip()
        pending = self._pending - self.statuses.keys()
        ready = [run for run in self.waiting if not (run.parent and run.parent.run in pending)]
        share = math.ceil(len(ready) / (slots or 1))
        most = {run.id: min(share, self._most.get(run.id, 1)) for run in ready}
        groups = _groups(ready, self._keys, most)
        for run in (run for group in groups[:slots] for run in group):
            self.waiting.remove(run)
        return groups[:slots]

    def is_fleet(self, group: Sequence[RunConfig]) -> bool:
        """Whether a group is trained by the program of a fleet."""
        return self._keys.get(group[0].id) is not None

    def put_back(self, group: Sequence[RunConfig]) -> None:
        """Runs that were taken and not begun wait again."""
        self.waiting = self._sorted([*self.waiting, *group])

    def lose(self, group: Sequence[RunConfig], status: RunStatus, retries: int) -> None:
        """Runs whose worker was lost wait again; those lost more often than that have ended."""
        for run in group:
            self._lost[run.id] += 1
            if self._lost[run.id] > retries:
                self.finish(run, status)
                continue
            self.put_back([run])
            message = f"{status.message or status.status}; trying again"
            count = f"{self._lost[run.id]} of {retries}"
            warnings.warn(f"run {run.id}: {message} ({count})", RuntimeWarning, stacklevel=2)

    def _sorted(self, runs: Sequence[RunConfig]) -> list[RunConfig]:
        return sorted(runs, key=lambda run: -self._lengths[run.id])


def lengths(runs: Sequence[RunConfig]) -> dict[str, float]:
    """FLOPs of each run and of the longest chain of branches that wait for it, by id."""
    known: dict[str, float] = {}
    behind: dict[str, float] = {}  # the longest chain of each parent
    for run in (run for part in reversed(waves(runs)) for run in part):
        known[run.id] = price([run]).flops + behind.get(run.id, 0.0)
        if run.parent:
            parent = run.parent.run
            behind[parent] = max(behind.get(parent, 0.0), known[run.id])
    return known


def waves(runs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Runs in as many parts as parents are behind one another, each behind its parents'."""
    left, parts = [*runs], []
    while left:
        ids = {run.id for run in left}
        parts.append([run for run in left if not (run.parent and run.parent.run in ids)])
        left = [run for run in left if run.parent and run.parent.run in ids]
    return parts


def _groups(
    runs: Sequence[RunConfig], keys: Mapping[str, Hashable], most: Mapping[str, int]
) -> list[list[RunConfig]]:
    """Runs that are trained side by side, in the order of the first of each."""
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
