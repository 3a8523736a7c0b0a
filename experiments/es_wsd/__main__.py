"""Three E(S) under WSD, at a shared rate and at tuned rates, and the schedules they call for.

Zhou et al. (arXiv 2601.05034) read E(S) off the stable phase at one learning rate. A team wants
the loss after the decay, at a tuned rate. So E(S) is measured three times from the same trunks, on
*stable* losses, on *averaged* weights, and on *annealed* losses (decay branches from log-spaced
points of each trunk); each at the shared rate and on the learning-rate envelope. For each: do the
curves of two batches cross, is B_opt inside the batches measured, does it rise as the loss falls?
Then every contender gets three rates about its own optimum, and ends at equal tokens.

    python -m experiments.es_wsd --config=configs/es_wsd.py:cpu
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.fitting.estimate import Options
from bss.points.crossings import crossings
from bss.points.standings import tuned
from bss.policies.late_switch import LateSwitch
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import decay_branch, decay_start
from bss.sweeps.contenders import (
    BatchRates,
    Contender,
    constant_contenders,
    contender_table,
    decaying,
    growing_contenders,
    late_contenders,
    with_rates,
)
from bss.sweeps.grid import expand, overlay, seeded
from bss.sweeps.price import price
from bss.sweeps.table import run_table
from bss.training.config import RunConfig
from bss.values import to_dict
from experiments.es_wsd.contenders import (
    best_batch,
    follow_optimum,
    surface_optimum,
)
from experiments.es_wsd.horizons import horizon_table
from experiments.es_wsd.measure import Laws, answer, fit_laws, measure
from experiments.study import (
    Setup,
    base_run,
    batch_unit,
    check_counts,
    check_parts,
    check_results,
    check_seeds,
    make_engine,
    planned_run,
    priced,
    print_hours,
    print_price,
    provenance,
    run_experiment,
    say,
    train_all,
    write_results,
)


@dataclass(frozen=True)
class Study:
    """The question.

    Attributes:
        title: of the report.
        grid: batches with the rates each is tried at.
        shared_rate: the one every batch is measured at.
        seeds: each is an initialisation and a data order.
        horizons: fractions of the tokens at which a decay branch ends, log-spaced.
        decay: part of a horizon decayed to zero.
        targets: target losses of each E(S).
        stages: of the derived schedules.
        settle: last stage of the surface's own optimum, as a part of the tokens.
        late_at: part of the tokens at which the late switch grows the batch.
        late_factor: and by how much.
        resamples: bootstrap refits behind each interval.
        results: directory of tables.
        dry_run: print what it costs, and stop.
        peak_flops: of one device, and
        mfu: the part of it that is reached: assumptions of the dry run.
        setup: model, data, optimizer, horizon, engine.

    Raises:
        InputError: on construction, if a number is out of range: before anything is trained.
    """

    title: str
    grid: tuple[BatchRates, ...]
    shared_rate: float
    results: str
    seeds: tuple[int, ...] = (0, 1, 2)
    horizons: tuple[float, ...] = (0.25, 0.4, 0.63, 1.0)
    decay: float = 0.2
    targets: int = 5
    stages: int = 4
    settle: float = 0.25
    late_at: float = 0.7
    late_factor: int = 8
    resamples: int = 500
    dry_run: bool = False
    peak_flops: float = 989e12
    mfu: float = 0.4
    setup: Setup = field(default_factory=Setup)

    def __post_init__(self) -> None:
        check_counts(self, "targets", "stages", "late_factor", "resamples")
        check_parts(self, "decay", "late_at", "settle")
        check_seeds(self)
        for name, at in (("late_at", self.late_at), ("1 - settle", 1 - self.settle)):
            if not at < 1 - self.decay:
                raise InputError(
                    f"{name} is {at:g}; expected less than 1 - decay, {1 - self.decay:g}, so that "
                    "the batch grows before the decay"
                )
        batches = [entry.batch for entry in self.grid]
        if len(set(batches)) < 4 or len(set(batches)) < len(batches):
            raise InputError(f"grid has batches {batches}; expected 4 or more, each once")
        for entry in self.grid:
            if len(set(entry.rates)) < len(entry.rates) or not entry.rates:
                raise InputError(
                    f"grid: batch {entry.batch} has rates {entry.rates}; name each once"
                )
        ends = self.horizons
        if len(ends) < 4 or list(ends) != sorted(set(ends)) or ends[0] <= 0 or ends[-1] != 1:
            raise InputError(
                f"horizons are {ends}; expected 4 rising parts of the tokens or more, the last 1"
            )
        if not self.setup.averages:
            raise InputError('setup.averages are none; expected a half-life, as "4%"')

    @property
    def rates(self) -> dict[int, tuple[float, ...]]:
        """The rates of each batch of the grid."""
        return {entry.batch: entry.rates for entry in self.grid}


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    if study.dry_run:
        say_price(study)
        return
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    base, execution = base_run(study.setup)
    horizon = study.setup.schedule.tokens
    ends = [round(part * horizon) for part in study.horizons]
    forks = (
        round(study.late_at * horizon),
        decay_start(horizon, study.settle),
        *(decay_start(end, study.decay) for end in ends),
    )
    execution = replace(execution, forks=forks)
    with make_engine(study.setup) as engine:
        trunks = expand(base, trunk_overlays(study))
        print_price("1/4 trunks", trunks)
        trunks = train_all(engine, trunks, execution, "1/4 trunks")
        decays = [annealed(trunk, end, study.decay) for trunk in trunks for end in ends]
        print_price("2/4 decay branches", decays)
        decays = train_all(engine, decays, execution, "2/4 decays")

        runs_directory = Path(execution.runs)
        runs = run_table(runs_directory, trunks)
        ended = final_rows(run_table(runs_directory, decays), trunks)
        measured = measure(
            runs,
            ended,
            average=study.setup.averages[0],
            shared_rate=study.shared_rate,
            targets=study.targets,
            warmup=study.setup.schedule.warmup,
        )
        options = Options(study.resamples)
        fits = {key: fit_laws(table, options) for key, table in measured.items()}

        derived, stable = contenders(study, base, fits, measured)
        stable = priced(engine, stable, execution, "3/4 contenders")
        decayed = [decaying(c, study.decay) for c in stable]
        decayed = priced(engine, decayed, execution, "4/4 their decays")
    compared = stable + decayed
    everything = [*trunks, *decays, *(c.run for c in compared)]

    write_results(
        Path(study.results),
        {
            "experiment.json": {
                "title": study.title,
                **provenance(to_dict(study), started, everything, execution.runs),
            },
            "runs.parquet": runs,
            "annealed.parquet": ended,
            "points.csv": pd.concat(
                [table.assign(rates=rates) for (_, rates), table in measured.items()]
            ),
            "fits.json": {
                f"{kind}, {rates}": found.to_dict() for (kind, rates), found in fits.items()
            },
            "answers.csv": pd.DataFrame(
                [answer(kind, rates, table) for (kind, rates), table in measured.items()]
            ),
            "crossings.csv": pd.concat(
                [
                    crossings(table).assign(kind=kind, rates=rates)
                    for (kind, rates), table in measured.items()
                ]
            ),
            "horizons.csv": pd.concat(
                [
                    horizon_table(some, execution, fits["annealed", rates].best_surface).assign(
                        rates=rates
                    )
                    for rates, some in (("shared", at_rate(study, decays)), ("envelope", decays))
                ]
            ),
            "schedules.json": {name: str(schedule) for name, schedule in derived.items()},
            "contenders.csv": tuned(with_rates(contender_table(compared, execution), compared)),
        },
    )
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


def say_price(study: Study) -> None:
    """Prints what the measurement costs, and the most its contenders can; no data are read."""
    base = planned_run(study.setup)
    horizon, seeds = study.setup.schedule.tokens, len(study.seeds)
    trunks = expand(base, trunk_overlays(study))
    ends = [round(part * horizon) for part in study.horizons]
    branches = [annealed(trunk, end, study.decay) for trunk in trunks for end in ends]
    # Nine contenders at most are trained from the start, at three rates, and decayed.
    flops = price([trunks[0]]).flops * 9 * 3 * seeds * (1 + study.decay)
    parts = {"trunks": price(trunks).flops, "decays": price(branches).flops, "contenders": flops}
    print_hours(parts, study.peak_flops, study.mfu)


def trunk_overlays(study: Study) -> list[dict[str, Any]]:
    """One constant-rate run for each batch, rate and seed; every batch has the shared rate too."""
    found = []
    for entry in study.grid:
        rates = sorted({*entry.rates, study.shared_rate})
        axes = {"seed": study.seeds, "optimizer.lr": rates, "schedule.batch": [str(entry.batch)]}
        found += seeded(axes)
    return found


def annealed(trunk: RunConfig, end: int, decay: float) -> RunConfig:
    """A trunk's branch whose rate decays to zero over the last part of the tokens to `end`."""
    return decay_branch(overlay(trunk, {"schedule.tokens": end}), decay)


def at_rate(study: Study, runs: list[RunConfig]) -> list[RunConfig]:
    """The runs at the shared rate."""
    return [run for run in runs if np.isclose(run.optimizer.lr, study.shared_rate)]


def final_rows(branches: pd.DataFrame, trunks: list[RunConfig]) -> pd.DataFrame:
    """The last row of every decay branch, under its trunk's name: the trunk's annealed curve."""
    last = branches.drop_duplicates("run", keep="last")
    names = {(t.schedule.batch.constant_batch, t.optimizer.lr, t.seed): t.id for t in trunks}
    keys = zip(last["batch"], last["peak_lr"], last["seed"], strict=True)
    renamed = last.assign(run=[names[key] for key in keys])
    return renamed.sort_values(["run", "tokens"]).reset_index(drop=True)


def contenders(
    study: Study,
    base: RunConfig,
    fits: dict[tuple[str, str], Laws],
    measured: dict[tuple[str, str], pd.DataFrame],
) -> tuple[dict[str, BatchSchedule], list[Contender]]:
    """The derived schedules by name, and every contender at its rates and seeds."""
    horizon, unit = study.setup.schedule.tokens, batch_unit(study.setup)
    stable, decayed = measured["stable", "shared"], measured["annealed", "shared"]

    def follow(key: tuple[str, str]) -> BatchSchedule:
        return follow_optimum(fits[key].best, measured[key], horizon, study.stages, unit)

    def switch(batch: int) -> BatchSchedule:
        policy = LateSwitch(study.late_at, study.late_factor, batch)
        return policy(Basis(base.data.seq_len), horizon, Limits())

    derived = {
        "B_opt along the stable loss": follow(("stable", "shared")),
        "B_opt along the annealed loss": follow(("annealed", "shared")),
        "the surface's own optimum": surface_optimum(stable, horizon, study.settle, [*study.rates]),
        "late": switch(best_batch(stable)),
        "late, annealed": switch(best_batch(decayed)),
        "late, tuned": switch(best_batch(measured["annealed", "envelope"])),
    }
    both = ("none", "sqrt")
    common = (base, study.rates, study.seeds)
    heuristic, own, first = (
        derived[name]
        for name in ("B_opt along the stable loss", "the surface's own optimum", "late")
    )
    found = [*constant_contenders(*common, [heuristic, first])]
    found += growing_contenders(*common, "B_opt along the stable loss", heuristic, both)
    annealed_follow = derived["B_opt along the annealed loss"]
    if annealed_follow != heuristic:
        found += growing_contenders(*common, "B_opt along the annealed loss", annealed_follow)
    if len(own.batches) == 2:
        found += late_contenders(*common, own, name="the surface's own optimum")
    found += late_contenders(*common, first, both)
    for other in dict.fromkeys((derived["late, annealed"], derived["late, tuned"])):
        if other != first:
            found += late_contenders(*common, other)
    return derived, found


if __name__ == "__main__":
    run_experiment(Study, experiment)
