"""What moves E(S), and who wins, when one thing about the training is changed.

Each variation trains the same constant batches and schedules with one change: another model size,
SGD, cosine instead of WSD, weight decay, a longer warm-up, longer sequences instead of a larger
batch. Where enough constants are trained at constant rate, E(S) is measured too, so that the best
batch can be compared over sizes and optimizers; and one run is repeated on several bucket ladders,
which must change nothing but rounding.

    python -m experiments.es_ablations --config=configs/es_ablations.py:cpu
"""

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.es import LAWS
from bss.laws.es.compare import compare
from bss.laws.fitting.estimate import Options
from bss.points.crossings import crossing_pairs, crossings, optima
from bss.points.curve import default_targets, points
from bss.sweeps.branching import late_switch
from bss.sweeps.contenders import Contender, contender_table
from bss.sweeps.engine import LocalEngine
from bss.sweeps.grid import overlay, seeded
from bss.sweeps.table import run_table
from bss.training.config import RunConfig
from bss.training.directory import read_status
from bss.training.execution import Execution
from bss.values import to_dict
from experiments.study import (
    Setup,
    base_run,
    check_counts,
    check_results,
    check_seeds,
    make_engine,
    priced,
    provenance,
    run_experiment,
    say,
    write_results,
)

LEAST_BATCHES = 4


@dataclass(frozen=True)
class Variation:
    """One change, and what is trained under it.

    Attributes:
        name: of the change.
        batches: constants and schedules as text, "4" or "0:4 70%:32".
        changes: fields of every run, by dotted names.
        after: fields changed at the switch of a two-stage schedule whose first batch is a
            constant of the variation.
        model: a named size; by default the setup's.
    """

    name: str
    batches: tuple[str, ...]
    changes: dict = field(default_factory=dict)
    after: dict = field(default_factory=dict)
    model: str = ""


@dataclass(frozen=True)
class Study:
    """The question.

    Attributes:
        title: of the report.
        variations: the first is the reference.
        seeds: each is an initialisation and a data order.
        targets: target losses of each E(S).
        ladders: bucket ladders on which the first seed of one constant batch is repeated.
        ladder_batch: that batch, in sequences.
        resamples: bootstrap refits behind each interval.
        results: directory of tables.
        setup: model, data, optimizer, horizon, engine.

    Raises:
        InputError: on construction, if something is out of range: before anything is trained.
    """

    title: str
    variations: tuple[Variation, ...]
    results: str
    seeds: tuple[int, ...] = (0, 1, 2)
    targets: int = 5
    ladders: tuple[tuple[int, ...], ...] = ()
    ladder_batch: int = 8
    resamples: int = 500
    setup: Setup = field(default_factory=Setup)

    def __post_init__(self) -> None:
        check_counts(self, "targets", "ladder_batch", "resamples")
        check_seeds(self)
        names = [variation.name for variation in self.variations]
        if not names or len(set(names)) < len(names):
            raise InputError(f"variations are {names}; expected at least one, each name once")
        if not self.setup.averages:
            raise InputError('setup.averages are none; expected a half-life, as "4%"')
        for ladder in self.ladders:
            if all(self.ladder_batch % bucket for bucket in ladder):
                raise InputError(
                    f"ladders: none of {list(ladder)} divides ladder_batch {self.ladder_batch}; "
                    "add a bucket that does"
                )


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    base, execution = base_run(study.setup)
    trained: dict[str, list[Contender]] = {}
    with make_engine(study.setup) as engine:
        for i, variation in enumerate(study.variations, 1):
            title = f"{i}/{len(study.variations)} {variation.name}"
            runs = list(contenders(study, variation))
            execution = replace(execution, forks=switches(runs))
            trained[variation.name] = priced(engine, runs, execution, title)
        ladders = repeat_on_ladders(study, base, execution, engine)
    tables = [
        contender_table(runs, execution).assign(variation=name) for name, runs in trained.items()
    ]
    measured = {
        variation.name: measure(study, trained[variation.name], execution)
        for variation in study.variations
        if not overlay(base, variation.changes).depends_on_stop
        and len(constants(variation)) >= LEAST_BATCHES
    }
    write_results(
        Path(study.results),
        {
            "experiment.json": {
                "title": study.title,
                **provenance(
                    to_dict(study),
                    started,
                    [c.run for runs in trained.values() for c in runs],
                    execution.runs,
                ),
            },
            "contenders.csv": pd.concat(tables),
            "points.csv": pd.concat([table for table, _ in measured.values()]),
            "fits.json": {name: fits for name, (_, fits) in measured.items()},
            "optima.csv": pd.DataFrame(
                [row for name, (table, _) in measured.items() for row in optimum_rows(name, table)]
            ),
            "ladders.csv": ladders,
        },
    )
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


def constants(variation: Variation) -> list[str]:
    """The constant batches of a variation, as text."""
    return [batch for batch in variation.batches if batch.isdigit()]


def contenders(study: Study, variation: Variation) -> Iterator[Contender]:
    """The runs of a variation, for every seed; late switches branch from their constant."""
    setup = study.setup
    if variation.model:
        setup = dataclasses.replace(setup, model=variation.model)
    base, _ = base_run(setup)
    for changes in seeded({"seed": study.seeds, "schedule.batch": variation.batches}):
        run = overlay(base, {**variation.changes, **changes})
        schedule = run.schedule.batch
        role = "constant" if len(schedule.batches) == 1 else "schedule"
        first = str(schedule.batches[0])
        if len(schedule.batches) == 2 and first in variation.batches and not run.depends_on_stop:
            role, trunk = "late", overlay(run, {"schedule.batch": first})
            run = late_switch(trunk, schedule.starts[1], schedule.batches[1])
            run = overlay(run, variation.after)
        elif variation.after and role == "schedule":
            raise InputError(
                f"variations: {variation.name!r} has changes after the switch, and "
                f"'{schedule}' is no branch of a constant of its own; leave it out"
            )
        name = f"constant {first}" if role == "constant" else str(schedule)
        yield Contender(name, role, "constant", run)


def switches(runs: list[Contender]) -> tuple[int, ...]:
    """Where the trunks keep a checkpoint for their branches, in tokens."""
    return tuple(sorted({c.run.parent.tokens for c in runs if c.run.parent}))


def measure(
    study: Study, runs: list[Contender], execution: Execution
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Points of the constants at constant rate, on stable and averaged losses, and their fits."""
    stable = [contender.run for contender in runs if contender.role == "constant"]
    table = run_table(Path(execution.runs), stable)
    tables, fits = [], {}
    columns = {"stable": "eval_loss", "averaged": f"eval_loss_avg_{study.setup.averages[0]}"}
    for kind, column in columns.items():
        warmup = stable[0].schedule.warmup
        targets = default_targets(table, study.targets, warmup_tokens=warmup, column=column)
        found = points(table, targets, column=column, kind=kind)
        compared = compare(found, tuple(LAWS))
        fit = fit_es(found, compared.winner, options=Options(study.resamples))
        tables.append(found)
        fits[kind] = {
            "comparison": compared.to_dict(),
            "law": compared.winner,
            "fit": fit.to_dict(),
        }
    return pd.concat(tables), fits


def optimum_rows(name: str, measured: pd.DataFrame) -> list[dict[str, Any]]:
    """B_opt at each target without a law, in log2 sequences with 2 standard errors over seeds.

    It is a bound where `interior` is False.
    """
    rows = []
    for kind, table in measured.groupby("kind", sort=False):
        pairs = crossing_pairs(crossings(table))
        rows += [
            {
                "variation": name,
                "kind": kind,
                "params": table["params"].iloc[0],
                "target_loss": found.target_loss,
                "best_batch": found.batch,
                "interior": found.interior,
                "log2_B_opt": found.log2_batch.value,
                "error": found.log2_batch.error,
                "seeds": found.log2_batch.seeds,
                "crossing_pairs": " ".join(f"{small:g}/{large:g}" for small, large in pairs),
            }
            for found in optima(table)
        ]
    return rows


def repeat_on_ladders(
    study: Study, base: RunConfig, execution: Execution, engine: LocalEngine
) -> pd.DataFrame:
    """Final losses of one run on several bucket ladders: equal up to rounding."""
    seed = study.seeds[0]
    changes = {"seed": seed, "data.seed": seed, "schedule.batch": str(study.ladder_batch)}
    run = overlay(base, changes)
    rows = []
    for ladder in study.ladders:
        folder = Path(study.setup.engine.runs) / ("buckets_" + "_".join(map(str, ladder)))
        here = replace(execution, runs=str(folder), buckets=ladder, forks=())
        engine.train([run], here)
        status = read_status(folder / run.id)
        rows.append(
            {
                "ladder": " ".join(map(str, ladder)),
                "batch": study.ladder_batch,
                "bucket": max(bucket for bucket in ladder if study.ladder_batch % bucket == 0),
                "eval_loss": status["eval_loss"],
                "test_loss": status["test_loss"],
                "tokens_per_second": status["throughput"][0]["tokens_per_second"],
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run_experiment(Study, experiment)
