"""What trains the runs of a study, says what they cost, and keeps what became of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bss.schedules.second_moment import short_second_moments
from bss.sweeps.engine import Engine
from bss.sweeps.grid import distinct
from bss.sweeps.price import price
from bss.sweeps.progress import Progress
from bss.training.distributed import is_primary, log_primary
from bss.training.evaluation import check_runs
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus


class HasRun(Protocol):
    """What stands for a run in a comparison: a contender, a trial."""

    @property
    def run(self) -> RunConfig:
        """What is trained."""
        ...


C = TypeVar("C", bound=HasRun)


class Trainer:
    """An engine, and the runs that it has trained for a study.

    Attributes:
        execution: where and how runs are trained.
        engine: what trains them.
        statuses: of every run that was asked for, by id.
        finished: the runs that came to their stop, by id.
    """

    def __init__(self, engine: Engine, execution: Execution, forks: Sequence[int] = ()):
        self.execution = replace(execution, forks=(*forks,))
        self.engine = engine
        self.statuses: dict[str, RunStatus] = {}
        self.finished: dict[str, RunConfig] = {}
        self._warned = set[str]()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.engine.close()

    @property
    def runs(self) -> Path:
        """Directory of run directories."""
        return Path(self.execution.runs)

    def train(
        self, runs: Sequence[RunConfig], title: str, forks: Sequence[int] | None = None
    ) -> list[RunConfig]:
        """Trains runs, equal ones once; returns those that finished, and names the others.

        Args:
            runs: of which those that this experiment has trained before are not priced again.
            title: of the price and the progress.
            forks: where they keep checkpoints, in place of the execution's.

        Raises:
            InputError: before any is trained, one that its text cannot serve.
        """
        if not runs:
            return []
        wanted = distinct(runs)
        new = [run for run in wanted if self.finished.get(run.id) != run]
        if new:
            check_runs(new, self.execution.data)
            log_primary(f"{title}: {price(new)}")
            self._warn(new)
        execution = self.execution if forks is None else replace(self.execution, forks=(*forks,))
        progress = Progress(title, quiet=not is_primary())
        statuses = self.engine.train(wanted, execution, progress)
        self.statuses |= statuses
        for run in wanted:
            status = statuses[run.id]
            if status.finished:
                self.finished[run.id] = run
            else:
                why = status.message or f"at {status.tokens:,} tokens"
                log_primary(f"run {run.id} (batch {run.schedule.batch}): {status.status}, {why}")
        return [run for run in runs if statuses[run.id].finished]

    def _warn(self, runs: Sequence[RunConfig]) -> None:
        """Says of each rule of beta2, once, that it keeps second moments for too few steps."""
        plans = (run.plan() for run in runs if run.optimizer.second_moment)
        short = short_second_moments(plans)
        for rule, message in short.items():
            if rule not in self._warned:
                log_primary(f"warning: {message}")
        self._warned |= short.keys()

    def contend(
        self, contenders: Sequence[C], title: str, forks: Sequence[int] | None = None
    ) -> list[C]:
        """Trains contenders as `train` does; returns those whose run finished."""
        self.train([contender.run for contender in contenders], title, forks)
        return [c for c in contenders if self.statuses[c.run.id].finished]
