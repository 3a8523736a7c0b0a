"""What all experiments share: the set-up of their runs, and the checks of their studies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.sweeps.contenders import BatchRates
from bss.sweeps.engine import Engine
from bss.sweeps.engines import ENGINES
from bss.sweeps.price import Price, hours
from bss.sweeps.setup import Setup
from bss.sweeps.sweep import prepared_run
from bss.sweeps.table import outcomes
from bss.sweeps.trainer import Trainer
from bss.training.distributed import log_primary as say
from bss.training.run_config import RunConfig
from experiments.preregister import check_first, digest


def check(study: Any, names: Sequence[str], right: Callable[[Any], bool], expected: str) -> None:
    """Refuses a study whose named fields are not right."""
    for name in names:
        if not right(value := getattr(study, name)):
            raise InputError(f"{name} is {value}; expected {expected}")


def check_counts(study: Any, *names: str) -> None:
    """Refuses a study whose named fields are not 1 or more."""
    check(study, names, lambda value: value >= 1, "1 or more")


def check_parts(study: Any, *names: str) -> None:
    """Refuses a study whose named fields are no parts of 1."""
    check(study, names, lambda value: 0 < value < 1, "a part of 1, as 0.2")


def check_positive(study: Any, *names: str) -> None:
    """Refuses a study whose named fields are not above 0."""
    check(study, names, lambda value: value > 0, "a positive number")


def check_names(field: str, names: Sequence[str]) -> None:
    """Refuses a field without names, and a name that stands there twice."""
    if not names or len(set(names)) < len(names):
        raise InputError(f"{field} are {list(names)}; expected at least one, each name once")


@dataclass(frozen=True, kw_only=True)
class SweepStudy:
    """What every study of a sweep asks for.

    Attributes:
        title: of the report.
        results: directory of tables.
        engine: what trains: see `bss.sweeps.engines`; how, the setup says.
        seeds: each is an initialisation and a data order; runs of one seed share both.
        resamples: bootstrap refits behind each interval.
        setup: model, data, optimizer, horizon, engine.

    Raises:
        InputError: on construction, if something is out of range: before anything is trained.
    """

    title: str
    results: str
    engine: str = "local"
    seeds: tuple[int, ...] = (0, 1, 2)
    resamples: int = 500
    setup: Setup = field(default_factory=Setup)

    def __post_init__(self) -> None:
        check_counts(self, "resamples")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds are {list(self.seeds)}; expected different ones, at least one")

    @property
    def tokens(self) -> int:
        """Of a run."""
        return self.setup.schedule.tokens

    def open_engine(self) -> Engine:
        """What trains its runs; InputError where that cannot be had."""
        return ENGINES[self.engine](self.setup.engine)

    def check_averages(self) -> None:
        """Refuses a set-up without weight averages."""
        if not self.setup.averages:
            raise InputError('setup.averages are none; expected a half-life, as "4%"')

    @contextmanager
    def training(
        self, forks: Sequence[int] = (), registration: str = ""
    ) -> Iterator[tuple[RunConfig, Trainer]]:
        """The run that its runs change, on shards prepared where missing, and what trains them.

        Runs record a registration, which is checked to be older than all that have started.
        """
        if registration:
            check_first(Path(registration), outcomes(Path(self.setup.engine.runs), ()))
        base, execution = prepared_run(self.setup)
        if registration:
            execution = replace(execution, registration=digest(Path(registration)))
        with Trainer(self.open_engine(), execution, forks) as trainer:
            yield base, trainer


@dataclass(frozen=True, kw_only=True)
class PricedStudy(SweepStudy):
    """A study that can print its price in place of running.

    Attributes:
        dry_run: print what it costs, and stop.
        peak_flops: of one device, and
        mfu: the part of it that is reached, assumed.
    """

    dry_run: bool = False
    peak_flops: float = 989e12
    mfu: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "peak_flops", "mfu")

    def print_hours(self, costs: Mapping[str, Price]) -> None:
        """Says what the parts of the study, by name, and all of it take of a device."""
        taken = {name: hours(cost, self.peak_flops, self.mfu) for name, cost in costs.items()}
        rows = [(name, cost.flops, taken[name]) for name, cost in costs.items()]
        rows.append(("all", sum(cost.flops for cost in costs.values()), sum(taken.values())))
        width = max(12, *(len(name) + 1 for name, *_ in rows))
        for name, flops, each in rows:
            print(f"{name:<{width}}{flops:>10.3g} FLOPs {each:>10.4g} hours of one device")
        say(f"hours: {self.rate}")

    @property
    def rate(self) -> str:
        """At which rate hours are, in words."""
        return f"at {self.mfu:.0%} of {self.peak_flops:.3g} FLOP/s (assumed)"


@dataclass(frozen=True, kw_only=True)
class TunedStudy(PricedStudy):
    """A study over a grid of batches and rates.

    Attributes:
        grid: constant batches with the rates each is tried at.
        shared_rate: the one at which they are compared besides.
        decay: last part of the tokens decayed to zero under WSD.
    """

    grid: tuple[BatchRates, ...]
    shared_rate: float
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self, "decay")
        self.setup.schedule.check_decay()

    @property
    def rates(self) -> dict[int, tuple[float, ...]]:
        """The rates of each batch of the grid."""
        return {entry.batch: entry.rates for entry in self.grid}


def batch_unit(setup: Setup) -> int:
    """What every derived batch is a multiple of, so that it is a whole number of buckets."""
    return min(setup.engine.buckets, default=1)
