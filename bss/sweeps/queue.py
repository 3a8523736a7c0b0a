"""The queue of a sweep: which runs are trained next, and what became of the others.

A forked run waits for its parent, and runs that have ended before are not trained again. The
longest runs go first, measured by the FLOPs of a run and of the forked runs that wait for it. This
avoids a long run at the end while other workers are idle. Of about equally long runs, those of
different programs go first, so that workers that start together do not compile the same program.

Each run enters and leaves a heap once, so that a sweep of N runs takes N log N operations.
"""

import heapq
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from bss.schedules.plan import Plan
from bss.sweeps.cost import estimate_cost
from bss.sweeps.progress import Progress
from bss.training.execution import Execution
from bss.training.loop import is_done
from bss.training.program_cache import step_key
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus, run_path, status_at
from bss.training.vmapped import vmap_key

Statuses = dict[str, RunStatus]
"""Statuses of runs, by id."""

_Order = tuple[int, int, float]
_Heap = list[tuple[_Order, int, str]]
"""Order, number of arrival and id of runs. Ids of runs that have left are passed over."""


class Queue:
    """The runs of a sweep that are not trained yet.

    Attributes:
        statuses: Statuses of the runs that have ended.
    """

    def __init__(
        self,
        runs: Sequence[RunConfig],
        execution: Execution,
        progress: Progress,
        runs_per_program: Callable[[RunConfig], int] = lambda run: 1,
    ) -> None:
        """Find the runs that have ended before.

        Args:
            runs: distinct runs.
            execution: Devices, directory and kernels of the runs.
            progress: shows every run.
            runs_per_program: Number of runs like a given one that share a program.
        """
        self.statuses: Statuses = {}
        self._progress = progress
        self._lost = Counter[str]()
        self._ready: dict[str, RunConfig] = {}
        self._blocked: dict[str, list[RunConfig]] = {}
        self._blocked_count = 0
        self._arrivals = itertools.count()
        self._heap: _Heap = []
        self._heaps: dict[Hashable, _Heap] = {}
        plans: dict[str, Plan] = {}
        for run in runs:
            plan = execution.plan(run)
            plans[run.id] = plan
            progress.add(run.id, plan.tokens - run.start)
            if is_done(run, plan, execution):
                self._record(run, status_at(run_path(execution.runs, run), plan))
        left = {run.id: run for run in runs if run.id not in self.statuses}
        self._orders = orders([*left.values()], plans, execution)
        self._limits = {run.id: runs_per_program(run) for run in left.values()}
        self._keys: dict[str, Hashable] = {
            run.id: vmap_key(run, execution) for run in left.values() if self._limits[run.id] > 1
        }
        for run in left.values():
            if run.parent and run.parent.run in left:
                self._blocked.setdefault(run.parent.run, []).append(run)
                self._blocked_count += 1
        for run in left.values():
            if not run.parent or run.parent.run not in left:
                self._release(run)

    @property
    def waiting(self) -> int:
        """The number of runs that are neither trained nor ended."""
        return len(self._ready) + self._blocked_count

    def finish(self, run: RunConfig, status: RunStatus) -> None:
        """Record that a run has ended; branches of a run that did not finish are skipped."""
        self._record(run, status)
        for branch in self._unblock(run):
            self._release(branch)

    def take(self, workers: int | None) -> list[list[RunConfig]]:
        """Return the groups of runs that are trained now, at most one per worker.

        Args:
            workers: number of workers without work, among which runs are divided; None: no limit.
        """
        share = len(self._ready)
        if workers is not None:
            share = math.ceil(share / (workers or 1))
        groups: list[list[RunConfig]] = []
        while self._ready and (workers is None or len(groups) < workers):
            groups.append(self._take_group(share))
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
            self._add(run)
            again = f"trying again ({self._lost[run.id]} of {retries})"
            warnings.warn(f"run {run.id}: {message}; {again}", RuntimeWarning, stacklevel=2)

    def _record(self, run: RunConfig, status: RunStatus) -> None:
        self.statuses[run.id] = status
        self._progress.finish(run.id, status.status)

    def _unblock(self, run: RunConfig) -> list[RunConfig]:
        """Return the branches that have waited for a run."""
        branches = self._blocked.pop(run.id, [])
        self._blocked_count -= len(branches)
        return branches

    def _release(self, run: RunConfig) -> None:
        """Make a run ready whose parent has ended; or skip it, and its branches with it."""
        released = [run]
        while released:
            one = released.pop()
            parent = self.statuses.get(one.parent.run) if one.parent else None
            if one.parent and parent and not parent.finished:
                self._record(one, skip(one.parent.run))
                released += self._unblock(one)
            else:
                self._add(one)

    def _add(self, run: RunConfig) -> None:
        self._ready[run.id] = run
        entry = self._orders[run.id], next(self._arrivals), run.id
        heapq.heappush(self._heap, entry)
        key = self._keys.get(run.id)
        if key is not None:
            heapq.heappush(self._heaps.setdefault(key, []), entry)

    def _take_group(self, share: int) -> list[RunConfig]:
        """Return the longest ready run, with the next ones that share a program with it."""
        first = self._pop(self._heap)
        assert first
        group = [first]
        key = self._keys.get(first.id)
        limit = min(share, self._limits[first.id])
        while key is not None and len(group) < limit:
            mate = self._pop(self._heaps[key])
            if mate is None:
                break
            group.append(mate)
        return group

    def _pop(self, heap: _Heap) -> RunConfig | None:
        """Take the longest run of a heap that is still ready; None if there is none."""
        while heap:
            *_, name = heapq.heappop(heap)
            if name in self._ready:
                return self._ready.pop(name)
        return None


def skip(parent: str) -> RunStatus:
    """Return the status of a run whose parent did not finish."""
    return RunStatus("skipped", message=f"{parent} failed")


def orders(
    runs: Sequence[RunConfig], plans: Mapping[str, Plan], execution: Execution
) -> dict[str, _Order]:
    """Return by id what runs with their plans are sorted by: length to a factor of 2, turn, length.

    The turn of a run is the number of longer runs with its programs, as long to a factor of 2.
    """
    length = lengths(runs)
    turns = Counter[Hashable]()
    found: dict[str, _Order] = {}
    for run in sorted(runs, key=lambda run: -length[run.id]):
        doublings = math.frexp(length[run.id])[1]
        buckets = execution.bucket_sizes(run).max_microbatches(plans[run.id])
        programs = doublings, step_key(run), *buckets
        found[run.id] = -doublings, turns[programs], -length[run.id]
        turns[programs] += 1
    return found


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
            known[run.id] = estimate_cost([run]).flops + after
        return known[run.id]

    return {run.id: length(run) for run in runs}
