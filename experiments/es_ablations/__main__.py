"""What moves E(S), and who wins, when one thing about the training is changed.

Each variation trains the same constant batches and schedules with one change: another model size,
SGD, cosine instead of WSD, weight decay, a longer warm-up, longer sequences instead of a larger
batch. Where enough constants are trained at constant rate, E(S) is measured too, so that the best
batch can be compared over sizes and optimizers; and one run is repeated on several bucket ladders,
which must change nothing but rounding.

    python -m experiments.es_ablations --config=configs/es_ablations.py:cpu
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.held_out import HeldOutColumn
from bss.laws.base import Options
from bss.points.crossings import crossing_pairs, crossings, optima
from bss.points.curve import default_targets, points
from bss.sweeps.branching import late_switch
from bss.sweeps.contenders import Contender, contender_table
from bss.sweeps.grid import overlay, seeded
from bss.sweeps.price import price
from bss.sweeps.results import Results
from bss.sweeps.setup import Setup, planned_run
from bss.sweeps.sweep import prepared_run
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.training.config import RunConfig
from experiments.es_ablations.study import Study, Variation
from experiments.es_wsd_archive.measure import fit_laws
from experiments.main import run_experiment

LEAST_BATCHES = 4


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    if study.dry_run:
        study.print_hours({v.name: price(_runs(study, v)) for v in study.variations})
        return
    results = Results(study)
    trained: dict[str, list[Contender]] = {}
    with study.training() as (base, trainer):
        for i, variation in enumerate(study.variations, 1):
            title = f"{i}/{len(study.variations)} {variation.name}"
            planned = list(contenders(study, variation, prepared_run(sized(study, variation))[0]))
            trained[variation.name] = trainer.contend(planned, title, switches(planned))
        ladders = repeat_on_ladders(study, base, trainer)
    measured = {
        variation.name: measure(study, trained[variation.name], trainer.runs)
        for variation in study.variations
        if not overlay(base, variation.changes).depends_on_stop
        and len(variation.constants) >= LEAST_BATCHES
    }
    tables = [
        contender_table(entries, trainer.statuses).drop(columns="peak_lr").assign(variation=name)
        for name, entries in trained.items()
    ]
    best = [row for name, (table, _) in measured.items() for row in optimum_rows(name, table)]
    results.write(
        {
            "contenders.csv": pd.concat(tables),
            "points.csv": pd.concat([table for table, _ in measured.values()]),
            "fits.json": {name: fits for name, (_, fits) in measured.items()},
            "optima.csv": pd.DataFrame(best),
            "ladders.csv": ladders,
        },
        trainer,
    )


def sized(study: Study, variation: Variation) -> Setup:
    """The setup of a variation's base run."""
    return replace(study.setup, model=variation.model or study.setup.model)


def contenders(study: Study, variation: Variation, base: RunConfig) -> Iterator[Contender]:
    """The runs of a variation, for every seed; late switches branch from their constant."""
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


def _runs(study: Study, variation: Variation) -> list[RunConfig]:
    """Those of a variation, without their data."""
    return [c.run for c in contenders(study, variation, planned_run(sized(study, variation)))]


def switches(runs: list[Contender]) -> tuple[int, ...]:
    """Where the trunks keep a checkpoint for their branches, in tokens."""
    return tuple(sorted({c.run.parent.tokens for c in runs if c.run.parent}))


def measure(
    study: Study, runs: list[Contender], directory: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Points of the constants at constant rate, on stable and averaged losses, and their fits."""
    stable = [contender.run for contender in runs if contender.role == "constant"]
    table = run_table(directory, stable)
    tables, fits = [], {}
    columns = {
        "stable": "eval_loss",
        "averaged": str(HeldOutColumn(half_life=study.setup.averages[0])),
    }
    warmup = stable[0].schedule.warmup
    for kind, column in columns.items():
        targets = default_targets(table, study.targets, warmup_tokens=warmup, column=column)
        table_of_points = points(table, targets, column=column, kind=kind)
        tables.append(table_of_points)
        fits[kind] = fitted(table_of_points, Options(study.resamples))
    return pd.concat(tables), fits


def fitted(measured: pd.DataFrame, options: Options) -> dict[str, Any]:
    """The law that is chosen, with the errors of all at left-out batches."""
    laws = fit_laws(measured, options, others=())
    return {"comparison": laws.comparison, "law": laws.best.name, "fit": laws.best}


def optimum_rows(name: str, measured: pd.DataFrame) -> list[dict[str, Any]]:
    """B_opt at each target without a law, in log2 sequences with 2 standard errors over seeds.

    `bound` says what it is where some seed's best batch is at an edge of those measured.
    """
    rows = []
    for kind, table in measured.groupby("kind", sort=False):
        pairs = crossing_pairs(crossings(table))
        rows += [
            {
                "variation": name,
                "kind": kind,
                "params": table["params"].iloc[0],
                "target_loss": optimum.target_loss,
                "best_batch": optimum.batch,
                "interior": optimum.interior,
                "bound": optimum.bound,
                "log2_B_opt": optimum.log2_batch.value,
                "error": optimum.log2_batch.error,
                "seeds": optimum.log2_batch.seeds,
                "crossing_pairs": " ".join(f"{small:g}/{large:g}" for small, large in pairs),
            }
            for optimum in optima(table)
        ]
    return rows


def repeat_on_ladders(study: Study, base: RunConfig, trainer: Trainer) -> pd.DataFrame:
    """Final losses of one run on several bucket ladders: equal up to rounding."""
    seed = study.seeds[0]
    changes = {"seed": seed, "data.seed": seed, "schedule.batch": str(study.ladder_batch)}
    run = overlay(base, changes)
    rows = []
    for ladder in study.ladders:
        folder = Path(study.setup.engine.runs) / ("buckets_" + "_".join(map(str, ladder)))
        here = replace(trainer.execution, runs=str(folder), buckets=ladder)
        status = trainer.engine.train([run], here)[run.id]
        rows.append(
            {
                "ladder": " ".join(map(str, ladder)),
                "batch": study.ladder_batch,
                "bucket": max(bucket for bucket in ladder if study.ladder_batch % bucket == 0),
                "eval_loss": status.losses["eval_loss"],
                "test_loss": status.losses["test_loss"],
                "tokens_per_second": status.throughput[0].tokens_per_second,
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run_experiment(Study, experiment)
