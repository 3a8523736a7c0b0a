"""A sweep as a value, and its training: one set-up, axes over it, two tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bss.data.prepare import prepare
from bss.errors import InputError, check_least
from bss.sweeps.axes import read_axes
from bss.sweeps.engine import Engine
from bss.sweeps.engines import ENGINES, JointEngine
from bss.sweeps.grid import Axis, expand
from bss.sweeps.setup import Setup, planned_run
from bss.sweeps.table import finals, origins, run_table
from bss.sweeps.trainer import Trainer
from bss.training.batches import SYNTHETIC, check_vocabulary
from bss.training.distributed import is_multihost, process_0_first
from bss.training.evaluation import check_runs
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.values import from_dict


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What a sweep is asked for.

    Attributes:
        setup: the run that the axes overlay, and what trains.
        axes: {"schedule.batch": [4, 8]}, a list of overlays, or "module:AXIS"; none for one run.
        axis: more of them as a command line writes them, "schedule.batch=4,8".
        title: of the report.
        engine: what trains: see `bss.sweeps.engines`; how, the setup says.
        targets: how many target losses are chosen.
        resamples: bootstrap refits behind each interval.
        results: directory of the tables and the report.
        dry_run: say what it costs, and stop.

    Raises:
        InputError: on construction, if something is out of range: before anything is trained.
    """

    setup: Setup = field(default_factory=Setup)
    axes: Any = field(default_factory=dict)
    axis: tuple[str, ...] = ()
    title: str = "A sweep"
    engine: str = "local"
    targets: int = 5
    resamples: int = 500
    results: str = ""
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_least("config", self, targets=1, resamples=10)
        ENGINES[self.engine]
        if callable(self.axes):
            raise InputError('axes is a function; a config names it: write "module:AXIS"')
        if not (self.results or self.dry_run):
            raise InputError("results is empty; name a directory for the tables and the report")

    def every_axis(self) -> list[Axis]:
        """Those of `axes`, then those of `axis`, read."""
        return read_axes(self.axes, self.axis)


class Sweep(NamedTuple):
    """What a sweep measured: a row an evaluation of every run, and a row a finished run."""

    runs: pd.DataFrame
    finals: pd.DataFrame


def sweep(
    base: Setup | Mapping[str, Any],
    axes: Any = (),
    runs: str | Path = "runs",
    *,
    engine: str = "local",
    title: str = "sweep",
) -> Sweep:
    """Trains a sweep; called again it trains what is left.

    Args:
        base: the run that the axes overlay, as a Setup or as nested dicts of one.
        axes: {"schedule.batch": [4, 8]}, a list of overlays, a function from a run to the runs it
            stands for, or "module:AXIS"; none for one run.
        runs: directory of run directories.
        engine: what trains: "local", "ray", or "module:ENGINE".
        title: of the progress.

    Returns:
        The run table and the final numbers, of the runs that finished.

    Raises:
        InputError: a mistake, before anything is trained; or no run finished.
    """
    setup = _setup(base, runs)
    return tables(*trained(setup, read_axes(axes), ENGINES[engine], title))


def train(base: Setup | Mapping[str, Any], runs: str | Path = "runs") -> pd.DataFrame:
    """Trains one run in this process; returns its curve, as a run table.

    Args:
        base, runs: as in `sweep`.

    Raises:
        InputError: a mistake, before anything is trained; or the run diverged.
    """
    return tables(*trained(_setup(base, runs), [], JointEngine, "run")).runs


def planned(setup: Setup, axes: Sequence[Axis] = ()) -> list[RunConfig]:
    """The runs of a sweep without their data, enough to price them.

    Raises:
        InputError: one that cannot be trained; an axis that names no field.
    """
    runs = expand(planned_run(setup), *axes)
    execution = setup.engine.execution()
    for run in runs:
        execution.plan(run)
    check_runs(runs)
    return runs


def prepared_run(setup: Setup) -> tuple[RunConfig, Execution]:
    """The run that axes overlay and how it is executed, on shards prepared first where missing."""
    text = setup.text
    if text.corpus == SYNTHETIC:
        return planned_run(setup, content=SYNTHETIC), setup.engine.execution()
    shards = process_0_first(
        lambda: prepare(
            text.corpus, text.tokenizer, Path(text.root), text_feature=text.text_feature
        )
    )
    run = planned_run(setup, shards.vocab_size, shards.content_hash)
    check_vocabulary(run.model, shards.vocab_size)
    return run, setup.engine.execution(str(shards.directory))


def trained(
    setup: Setup, axes: Sequence[Axis], kind: type[Engine], title: str
) -> tuple[list[RunConfig], Trainer]:
    """The runs that finished, and what trained them; its engine is closed.

    Of several processes that were joined, all train every run together, whatever the engine.
    """
    planned(setup, axes)  # before a corpus is prepared
    with (JointEngine if is_multihost() else kind)(setup.engine) as engine:
        base, execution = prepared_run(setup)
        runs = expand(base, *axes)
        trainer = Trainer(engine, execution)
        return trainer.train(runs, title), trainer


def tables(runs: Sequence[RunConfig], trainer: Trainer) -> Sweep:
    """The run table and the final numbers of runs that finished; InputError where none did."""
    measured = run_table(trainer.runs, runs)
    ended = finals(runs, trainer.statuses)
    ended = ended.merge(origins(trainer.runs, [run.id for run in runs]), on="run")
    return Sweep(measured, ended)


def _setup(base: Setup | Mapping[str, Any], runs: str | Path) -> Setup:
    setup = base if isinstance(base, Setup) else from_dict(Setup, base, "setup.")
    return replace(setup, engine=replace(setup.engine, runs=str(runs)))
