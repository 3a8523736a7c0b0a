"""Three E(S) under WSD, at a shared rate and at tuned rates, and the schedules they call for.

Zhou et al. (arXiv 2601.05034) read E(S) off the stable phase at one learning rate. A team wants
the loss after the decay, at a tuned rate. So E(S) is measured three times from the same trunks, on
*stable* losses, on *averaged* weights, and on *annealed* losses (decay branches from log-spaced
points of each trunk); each at the shared rate and on the learning-rate envelope. For each: do the
curves of two batches cross, is B_opt inside the batches measured, does it rise as the loss falls?
Then every contender gets the same rates, and ends at equal tokens.

    python -m experiments.es_wsd --config=configs/es_wsd.py:cpu
"""

import itertools
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.envelope import envelope
from bss.laws.es_compare import CANDIDATES, compare, fit_candidate
from bss.laws.es_values import EsFit
from bss.laws.fit import Options
from bss.laws.points import default_targets, points
from bss.laws.recommend import follow_measured, law_optimum, recommend
from bss.schedules.batch import BatchSchedule
from bss.sweeps.grid import expand, overlay, product
from bss.sweeps.index import run_table
from bss.training.config import RunConfig, to_dict
from bss.training.execution import Execution
from experiments.common import (
    Setup,
    base_run,
    batch_unit,
    check_results,
    make_engine,
    print_price,
    provenance,
    run_experiment,
    say,
    train_all,
    write_results,
)
from experiments.es_curve import (
    Contender,
    contender_table,
    decay_branch,
    decay_start,
    finished,
    late_switch,
)

KINDS = ("stable", "averaged", "annealed")


@dataclass(frozen=True)
class BatchRates:
    """One constant batch, in sequences, and the learning rates it is tried at."""

    batch: int
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Study:
    """The question.

    Attributes:
        title: of the report.
        grid: batches with the rates each is tried at.
        shared_rate: the one every batch is measured at.
        contender_rates: rates that every contender is tried at.
        seeds: each is an initialisation and a data order.
        horizons: fractions of the tokens at which a decay branch ends, log-spaced.
        decay: part of a horizon decayed to zero.
        targets: target losses of each E(S).
        stages: of the derived schedules.
        settle: last stage of the surface's own optimum, as a fraction.
        late_at: part of the tokens at which the late switch grows the batch.
        late_factor: and by how much.
        resamples: bootstrap refits behind each interval.
        results: directory of tables.
        setup: model, data, optimizer, horizon, engine.
    """

    title: str
    grid: tuple[BatchRates, ...]
    shared_rate: float
    contender_rates: tuple[float, ...]
    results: str
    seeds: tuple[int, ...] = (0, 1, 2)
    horizons: tuple[float, ...] = (0.25, 0.4, 0.63, 1.0)
    decay: float = 0.2
    targets: int = 5
    stages: int = 4
    settle: float = 0.1
    late_at: float = 0.7
    late_factor: int = 8
    resamples: int = 500
    setup: Setup = field(default_factory=Setup)


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    base, execution = base_run(study.setup)
    horizon = study.setup.schedule.tokens
    ends = [round(part * horizon) for part in study.horizons]
    forks = (round(study.late_at * horizon), *(decay_start(end, study.decay) for end in ends))
    execution = replace(execution, forks=forks)
    with make_engine(study.setup) as engine:
        trunks = expand(base, trunk_overlays(study))
        print_price("1/4 trunks", trunks)
        trunks = train_all(engine, trunks, execution, "1/4 trunks")
        decays = [annealed(trunk, end, study.decay, execution) for trunk in trunks for end in ends]
        print_price("2/4 decay branches", decays)
        decays = train_all(engine, decays, execution, "2/4 decays")

        runs_directory = Path(execution.runs)
        runs = run_table(runs_directory, trunks)
        ended = final_rows(run_table(runs_directory, decays), trunks)
        measured = measure(study, runs, ended)
        fits = {key: fit_best(study, table) for key, table in measured.items()}

        stable = contenders(study, base, fits["stable", "shared"], measured["stable", "shared"])
        print_price("3/4 contenders", [c.run for c in stable])
        stable = finished(engine, stable, execution, "3/4 contenders")
        decayed = [decay_branch(c, study.decay, execution) for c in stable]
        decayed = finished(engine, decayed, execution, "4/4 their decays")
    everything = [*trunks, *decays, *(c.run for c in stable + decayed)]

    write_results(
        Path(study.results),
        {
            "experiment.json": {
                "title": study.title,
                **provenance(to_dict(study), started, everything),
            },
            "runs.parquet": runs,
            "annealed.parquet": ended,
            "points.csv": pd.concat(
                [table.assign(rates=rates) for (_, rates), table in measured.items()]
            ),
            "fits.json": {
                f"{kind}, {rates}": {"law": name, "fit": fit.to_dict()}
                for (kind, rates), (name, fit) in fits.items()
            },
            "answers.csv": pd.DataFrame(
                [
                    answers(kind, rates, measured[kind, rates], *fits[kind, rates])
                    for kind, rates in measured
                ]
            ),
            "contenders.csv": tuned(contender_table(stable + decayed, execution), stable + decayed),
        },
    )
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


def trunk_overlays(study: Study) -> list[dict[str, Any]]:
    """One constant-rate run for each batch, rate and seed; every batch has the shared rate too."""
    found = []
    for entry in study.grid:
        rates = sorted({*entry.rates, study.shared_rate})
        axes = {"seed": study.seeds, "optimizer.lr": rates, "schedule.batch": [str(entry.batch)]}
        found += [{**changes, "data.seed": changes["seed"]} for changes in product(axes)]
    return found


def annealed(trunk: RunConfig, end: int, decay: float, execution: Execution) -> RunConfig:
    """A trunk's branch whose rate decays to zero over the last part of the tokens to `end`."""
    shorter = overlay(trunk, {"schedule.tokens": end})
    return decay_branch(Contender("", "", "", shorter), decay, execution).run


def final_rows(branches: pd.DataFrame, trunks: list[RunConfig]) -> pd.DataFrame:
    """The last row of every decay branch, under its trunk's name: the trunk's annealed curve."""
    last = branches.drop_duplicates("run", keep="last")
    names = {(t.schedule.batch, t.optimizer.lr, t.seed): t.id for t in trunks}
    keys = zip(last["batch"].astype(str), last["peak_lr"], last["seed"], strict=True)
    renamed = last.assign(run=[names[key] for key in keys])
    return renamed.sort_values(["run", "tokens"]).reset_index(drop=True)


def measure(
    study: Study, runs: pd.DataFrame, ended: pd.DataFrame
) -> dict[tuple[str, str], pd.DataFrame]:
    """Points by (kind of loss, "shared" or "envelope")."""
    averaged = f"eval_loss_avg_{study.setup.averages[0]}"
    sources = {
        "stable": (runs, "eval_loss"),
        "averaged": (runs, averaged),
        "annealed": (ended, "eval_loss"),
    }
    warmup = study.setup.schedule.warmup
    found = {}
    for kind, (table, column) in sources.items():
        targets = default_targets(
            table, study.targets, warmup_tokens=warmup, column=column, share=0.6
        )
        every = points(table, targets, column=column, kind=kind)
        shared = np.isclose(every["peak_lr"].to_numpy(float), study.shared_rate)
        found[kind, "shared"] = every[shared].reset_index(drop=True)
        found[kind, "envelope"] = envelope(every)
    return found


def fit_best(study: Study, measured: pd.DataFrame) -> tuple[str, EsFit]:
    """The law that predicts left-out batches best, fitted; by name."""
    winner = compare(measured, tuple(CANDIDATES)).winner
    return winner, fit_candidate(measured, winner, Options(study.resamples))


def answers(kind: str, rates: str, measured: pd.DataFrame, law: str, fit: EsFit) -> dict[str, Any]:
    """Do the curves cross, is the best batch interior, does it rise as the loss falls?"""
    best = [
        best_measured(measured.loc[measured["target_loss"] == target])
        for target in sorted(set(measured["target_loss"]), reverse=True)
    ]
    batches = measured["batch"].to_numpy(float)
    known = [f.batches["B_opt"].value for f in fit.fits if "B_opt" in f.batches]
    law_opt = [value for value in known if value is not None]
    return {
        "kind": kind,
        "rates": rates,
        "law": law,
        "best_batches": " ".join(f"{batch:g}" for batch in best),
        "curves_cross": len(set(best)) > 1,
        "interior_targets": sum(batches.min() < batch < batches.max() for batch in best),
        "targets": len(best),
        "measured_rises": all(a <= b for a, b in itertools.pairwise(best)),
        "law_B_opt": " ".join(f"{value:.3g}" for value in law_opt),
        "law_rises": len(law_opt) > 1 and all(a < b for a, b in itertools.pairwise(law_opt)),
    }


def contenders(
    study: Study, base: RunConfig, fitted: tuple[str, EsFit], measured: pd.DataFrame
) -> list[Contender]:
    """Every contender at every rate and seed: constants, their average, late, derived, tuned."""
    horizon = study.setup.schedule.tokens
    derived = schedules(study, fitted, measured)
    heuristic = derived["B_opt along the loss"]
    unit = batch_unit(study.setup)
    average = unit * max(1, round(heuristic.mean_batch(horizon) / unit))
    named = {f"constant {entry.batch}": (str(entry.batch), "constant") for entry in study.grid}
    named.setdefault(f"constant {average}", (str(average), "average"))
    named |= {name: (str(schedule), "schedule") for name, schedule in derived.items()}
    found = []
    for name, (batch, role) in named.items():
        for coupling in ("none", "sqrt") if role == "schedule" else ("none",):
            label = f"{name}, LR × sqrt" if coupling == "sqrt" else name
            axes = {"seed": study.seeds, "optimizer.lr": study.contender_rates}
            for changes in product(axes):
                change = {
                    **changes,
                    "data.seed": changes["seed"],
                    "schedule.batch": batch,
                    "schedule.lr_coupling": coupling,
                }
                found.append(Contender(label, role, "constant", overlay(base, change)))
    best = best_measured(measured)
    for changes in product({"seed": study.seeds, "optimizer.lr": study.contender_rates}):
        change = {**changes, "data.seed": changes["seed"], "schedule.batch": str(best)}
        trunk = overlay(base, change)
        late = late_switch(trunk, round(study.late_at * horizon), best * study.late_factor)
        found.append(Contender(f"late {late.schedule.batch}", "late", "constant", late))
    return found


def schedules(
    study: Study, fitted: tuple[str, EsFit], measured: pd.DataFrame
) -> dict[str, BatchSchedule]:
    """The paper's heuristic, and the surface's own optimum."""
    horizon, (_, fit), unit = study.setup.schedule.tokens, fitted, batch_unit(study.setup)
    try:
        heuristic = recommend(fit, horizon, study.stages, multiple_of=unit)
    except InputError as error:
        say(f"{error}; the best measured batches are followed")
        heuristic = follow_measured(measured, horizon, study.stages, multiple_of=unit)
    clock = fit_candidate(measured, "surface, Adam clock", Options(1))
    batches = [entry.batch for entry in study.grid]
    own = law_optimum(clock, horizon, settle=study.settle, batches=batches)
    return {"B_opt along the loss": heuristic, "the surface's own optimum": own}


def best_measured(measured: pd.DataFrame) -> int:
    """The batch with the fewest tokens to the lowest target, geometric mean over its runs."""
    needed: dict[float, list[float]] = {}
    lowest = measured["target_loss"].min()
    for row in measured.to_dict("records"):
        if row["reached"] and row["target_loss"] == lowest:
            needed.setdefault(row["batch"], []).append(math.log(row["tokens_to_target"]))
    return int(min(needed, key=lambda batch: sum(needed[batch]) / len(needed[batch])))


def tuned(table: pd.DataFrame, runs: list[Contender]) -> pd.DataFrame:
    """Each contender at its best rate: the lowest held-out loss, averaged over seeds.

    `trials` is how many rates that minimum was taken over.
    """
    rates = {contender.run.id: contender.run.optimizer.lr for contender in runs}
    table = table.assign(peak_lr=[rates[run] for run in table["run"]])
    kept = []
    for _, rows in table.groupby(["name", "rate"], sort=False):
        losses: dict[float, list[float]] = {}
        for row in rows.to_dict("records"):
            losses.setdefault(row["peak_lr"], []).append(row["eval_loss"])
        best = min(losses, key=lambda rate: sum(losses[rate]) / len(losses[rate]))
        kept.append(rows[rows["peak_lr"] == best].assign(trials=len(losses)))
    return pd.concat(kept, ignore_index=True)


if __name__ == "__main__":
    run_experiment(Study, experiment)
