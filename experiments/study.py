"""Parts that all experiments share: the setup of runs, their training and their cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pandas as pd

from bss.errors import InputError
from bss.sweeps.contenders import Contender, arm_columns, contender_table
from bss.sweeps.cost import estimate_cost, hours
from bss.sweeps.engines import ENGINES
from bss.sweeps.results import Results
from bss.sweeps.setup import Setup, planned_run
from bss.sweeps.sweep import prepared_run
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.training.distributed import log_primary as say
from bss.training.run_config import RunConfig
from experiments.preregister import check_committed, digest

P = TypeVar("P", bound="PricedStudy")


@dataclass(frozen=True, kw_only=True)
class PricedStudy:
    """The fields of every study that trains runs.

    Attributes:
        title: Title of the report.
        results: Directory of the tables.
        engine: What trains the runs, see `bss.sweeps.engines`.
        seeds: Seeds of initialization and data order; runs of one seed share both.
        registration: File of a preregistration, committed and unchanged, which the runs record;
            "" for none.
        resamples: Bootstrap refits per interval.
        setup: Model, data, optimizer, token budget and the engine's settings.
        dry_run: Print the cost and stop.
        peak_flops: FLOP/s of one device.
        mfu: Assumed fraction of `peak_flops` that training reaches.

    Raises:
        InputError: If a seed occurs twice; it would count as two.
    """

    title: str
    results: str
    engine: str = "local"
    seeds: tuple[int, ...] = (0, 1, 2)
    registration: str = ""
    resamples: int = 500
    setup: Setup = field(default_factory=Setup)
    dry_run: bool = False
    peak_flops: float = 989e12
    mfu: float = 0.4

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < max(len(self.seeds), 1):
            raise InputError(f"seeds are {list(self.seeds)}; expected one or more, each once")

    @property
    def tokens(self) -> int:
        """Token budget of a run."""
        return self.setup.schedule.tokens

    @contextmanager
    def training(self, forks: Sequence[int] = ()) -> Iterator[tuple[RunConfig, Trainer]]:
        """Open the engine; give the run that the study changes, and what trains the runs.

        Args:
            forks: Token counts at which runs keep a checkpoint for forked runs.
        """
        base, execution = prepared_run(self.setup)
        if self.registration:
            file = Path(self.registration)
            check_committed(file)
            execution = replace(execution, registration=digest(file))
        with Trainer(ENGINES.load(self.engine)(self.setup.engine), execution, forks) as trainer:
            yield base, trainer

    def print_hours(self, parts: Mapping[str, Sequence[RunConfig]]) -> None:
        """Print the cost of each part of the study and of all of it, from its runs."""
        costs = {name: estimate_cost(runs) for name, runs in parts.items()}
        taken = {name: hours(cost, self.peak_flops, self.mfu) for name, cost in costs.items()}
        rows = [(name, cost.flops, taken[name]) for name, cost in costs.items()]
        rows.append(("all", sum(cost.flops for cost in costs.values()), sum(taken.values())))
        width = max(12, *(len(name) + 1 for name, *_ in rows))
        for name, cost in costs.items():
            say(f"{name}: {cost}")
        for name, flops, each in rows:
            print(f"{name:<{width}}{flops:>10.3g} FLOPs {each:>10.4g} hours of one device")
        say(f"hours: at {self.mfu:.0%} of {self.peak_flops:.3g} FLOP/s (assumed)")


def train_arms(
    study: P,
    arms: Callable[[P, RunConfig], list[Contender]],
    decayed: Callable[[P, Sequence[Contender]], list[Contender]],
    forks: Sequence[int],
) -> None:
    """Train a part and write runs.parquet and finals.csv; print its cost if it is a dry run.

    Args:
        study: The part.
        arms: Maps the study and its base run to the compared runs at constant LR.
        decayed: Maps the study and those that finished to runs whose last tokens are decayed.
        forks: Token counts at which runs keep a checkpoint for forked runs.
    """
    if study.dry_run:
        constant = arms(study, planned_run(study.setup))
        parts = {"constant LR": constant, "decays": decayed(study, constant)}
        study.print_hours({name: [one.run for one in some] for name, some in parts.items()})
        return
    results = Results(study)
    with study.training(forks) as (base, trainer):
        constant = trainer.contend(arms(study, base), "1/2 constant LR")
        tables = {"runs.parquet": named_curves(trainer, constant)}
        results.write(tables | {"finals.csv": final_table(trainer, constant)}, trainer)
        if decays := trainer.contend(decayed(study, constant), "2/2 decays"):
            finals = final_table(trainer, [*constant, *decays])
            results.write(tables | {"finals.csv": finals}, trainer)


def named_curves(trainer: Trainer, arms: Sequence[Contender]) -> pd.DataFrame:
    """Return the run table of compared runs, with their names."""
    curves = run_table(trainer.runs, [one.run for one in arms])
    ids = [one.run.id for one in arms]
    columns = {
        column: curves["run"].map(dict(zip(ids, values, strict=True)))
        for column, values in arm_columns(arms).items()
    }
    return curves.assign(**columns)


def final_table(trainer: Trainer, arms: Sequence[Contender]) -> pd.DataFrame:
    """Return the final losses of compared runs, with the seconds of each run."""
    seconds = {run: status.seconds for run, status in trainer.statuses.items()}
    finals = contender_table(arms, trainer.statuses)
    return finals.assign(seconds=finals["run"].map(seconds))
