"""A sweep: one setup and axes over it; it is trained, and its runs are collected in two tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bss.data.prepare import prepare
from bss.data.synthetic import is_synthetic
from bss.errors import InputError
from bss.sweeps.axes import read_axes
from bss.sweeps.checks import check_sweep, check_text
from bss.sweeps.engine import Engine
from bss.sweeps.engines import JointEngine, engine_of
from bss.sweeps.grid import Axis, expand
from bss.sweeps.setup import Setup, planned_run
from bss.sweeps.table import finals, origins, run_table
from bss.sweeps.trainer import Trainer
from bss.training.batches import check_vocabulary
from bss.training.distributed import process_0_first
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.values import from_dict


class Sweep(NamedTuple):
    """The results of a sweep: `runs` has a row per evaluation, `finals` a row per finished run.

    Attributes:
        runs: A run table, as `bss.check_runs` describes it.
        finals: Final losses in nats and settings.

    Examples:
        >>> sweep(Setup("pico"), {"schedule.batch": [4, 8]}, "runs").finals  # doctest: +SKIP
    """

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
    """Train a sweep; a second call trains only the remaining runs.

    Args:
        base: The run that the axes change, as a Setup or as nested dicts of its fields.
        axes: {"schedule.batch": [4, 8]}, a list of overlays, a function from a run to the runs that
            replace it, or "module:AXIS"; none for one run.
        runs: directory of run directories.
        engine: Engine that trains: "local", "ray", "slurm", or "module:ENGINE".
        title: Title of the progress bar.

    Returns:
        The run table and the final numbers of the runs that finished.

    Raises:
        InputError: If the sweep is wrong, before anything is trained; or if no run finished.

    Examples:
        >>> result = sweep({"model": "pico"}, {"seed": [0, 1]}, runs="runs")  # doctest: +SKIP
        >>> result.finals["eval_loss"]  # doctest: +SKIP
    """
    setup = _setup(base, runs)
    return tables(*trained(setup, read_axes(axes), engine_of(engine), title))


def train(base: Setup | Mapping[str, Any], runs: str | Path = "runs") -> pd.DataFrame:
    """Train one run in this process; return its curve, as a run table.

    Args:
        base: A setup, or its fields by name.
        runs: Directory of run directories.

    Returns:
        One row per evaluation, with losses in nats.

    Raises:
        InputError: If the run is wrong, before it is trained; or if it failed or diverged.

    Examples:
        >>> train({"model": "pico", "schedule": {"tokens": "200K"}})  # doctest: +SKIP
    """
    finished, trainer = trained(_setup(base, runs), [], JointEngine, "run")
    for status in trainer.statuses.values():
        if status.status == "failed":
            raise InputError(status.message)
    return tables(finished, trainer).runs


def planned(
    setup: Setup, axes: Sequence[Axis] = (), kind: type[Engine] = Engine
) -> list[RunConfig]:
    """Return the runs of a sweep without their data, checked; enough to estimate their cost.

    Args:
        setup: the run that axes overlay.
        axes: the axes.
        kind: engine that trains them; by default what it refuses is not known.

    Raises:
        InputError: If the corpus is not there, a run cannot be trained, or an axis names no field.
    """
    check_text(setup.text)
    runs = expand(planned_run(setup), *axes)
    check_sweep(runs, setup.engine, kind)
    return runs


def prepared_run(setup: Setup) -> tuple[RunConfig, Execution]:
    """Return the run that axes overlay and its execution; missing shards are prepared first."""
    text = setup.text
    if is_synthetic(text.corpus):
        return planned_run(setup, content=text.corpus), setup.engine.execution()
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
    """Return the runs that finished, and what trained them; its engine is closed."""
    planned(setup, axes, kind)  # before a corpus is prepared
    with kind(setup.engine) as engine:
        base, execution = prepared_run(setup)
        runs = expand(base, *axes)
        trainer = Trainer(engine, execution)
        return trainer.train(runs, title), trainer


def tables(runs: Sequence[RunConfig], trainer: Trainer) -> Sweep:
    """Return the run table and the final numbers of finished runs; raise InputError if none did."""
    measured = run_table(trainer.runs, runs)
    ended = finals(runs, [trainer.status_of(run) for run in runs])
    ended = ended.merge(origins(trainer.runs, [run.id for run in runs]), on="run")
    return Sweep(measured, ended)


def _setup(base: Setup | Mapping[str, Any], runs: str | Path) -> Setup:
    setup = base if isinstance(base, Setup) else from_dict(Setup, base, "setup.")
    return replace(setup, engine=replace(setup.engine, runs=str(runs)))
