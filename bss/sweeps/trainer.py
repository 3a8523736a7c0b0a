"""Train the runs of a study, print their cost, and record their outcomes."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bss.schedules.second_moment import short_second_moments
from bss.sweeps.checks import check_sweep
from bss.sweeps.contenders import Contender
from bss.sweeps.cost import estimate_cost
from bss.sweeps.engine import Engine
from bss.sweeps.grid import longest, stages
from bss.sweeps.progress import Progress
from bss.training.distributed import is_primary, log_primary
from bss.training.evaluation import check_runs
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus


class Trainer(AbstractContextManager):
    """An engine, and the runs that it has trained for a study.

    Attributes:
        execution: Directory and settings for training runs.
        engine: Engine that trains them.
        statuses: Statuses of all requested runs by id, at the largest token budget.
        finished: Runs that reached their last token, by id.
    """

    def __init__(self, engine: Engine, execution: Execution, forks: Sequence[int] = ()) -> None:
        self.execution = replace(execution, forks=(*forks,))
        self.engine = engine
        self.statuses: dict[str, RunStatus] = {}
        self.finished: dict[str, RunConfig] = {}
        self._warned = set[str]()
        self._by_budget: dict[tuple[str, int], RunStatus] = {}

    def __exit__(self, *_: Any) -> None:
        self.engine.close()

    @property
    def runs(self) -> Path:
        """Directory of run directories."""
        return Path(self.execution.runs)

    def train(
        self, runs: Sequence[RunConfig], title: str, forks: Sequence[int] | None = None
    ) -> list[RunConfig]:
        """Train distinct runs and return the finished ones. Print the ids of all others.

        Args:
            runs: Runs to train. Runs that this experiment has trained are not priced again.
            title: Title of the cost and the progress bar.
            forks: Token positions of checkpoints. Default: `execution.forks`.

        Raises:
            InputError: If the data do not suffice for a run. Raised before any run is trained.
        """
        if not runs:
            return []
        wanted = longest(runs)
        new = [run for run in wanted if self.finished.get(run.id) != run]
        if new:
            check_sweep(new, self.engine.config, type(self.engine))
            check_runs(new, self.execution.data)
            log_primary(f"{title}: {estimate_cost(new)}")
            self._warn(new)
        execution = self.execution if forks is None else replace(self.execution, forks=(*forks,))
        for stage in stages(runs):
            progress = Progress(title, quiet=not is_primary())
            statuses = self.engine.train(stage, execution, progress)
            self.statuses |= statuses
            for run in stage:
                self._by_budget[run.id, run.schedule.tokens] = statuses[run.id]
        for run in wanted:
            status = self.statuses[run.id]
            if status.finished:
                self.finished[run.id] = run
            else:
                why = status.message or f"at {status.tokens:,} tokens"
                log_primary(f"run {run.id} (batch {run.schedule.batch}): {status.status}, {why}")
        return [run for run in runs if self.status_of(run).finished]

    def status_of(self, run: RunConfig) -> RunStatus:
        """Return the status of a requested run at its own token budget."""
        return self._by_budget[run.id, run.schedule.tokens]

    def _warn(self, runs: Sequence[RunConfig]) -> None:
        """Warn once per beta2 rule that averages second moments over too few steps."""
        plans = (run.plan() for run in runs if run.optimizer.second_moment)
        short = short_second_moments(plans)
        for rule, message in short.items():
            if rule not in self._warned:
                log_primary(f"warning: {message}")
        self._warned |= short.keys()

    def contend(self, contenders: Sequence[Contender], title: str) -> list[Contender]:
        """Train the runs of `contenders`; return the finished ones."""
        self.train([contender.run for contender in contenders], title)
        return [c for c in contenders if self.status_of(c.run).finished]
