"""E(S) under WSD, end to end: train, measure, fit, schedule, and test the schedule.

The procedure of Zhou et al. (arXiv 2601.05034), at one shared learning rate:

1. one stable-phase trunk per batch size: it serves every target loss and every horizon;
2. steps S and tokens E to each target loss, from held-out losses;
3. the laws E(S), and which of them predicts left-out batch sizes best;
4. that law as a batch schedule: B_opt along the loss trajectory;
5. the schedule against constant batches at equal tokens: every constant of the sweep, the
   constant with the schedule's average batch (equal tokens and equal steps), one late switch;
   each at constant rate and with a last part decayed to zero, by branches from checkpoints.

    python -m experiments.es_curve --config=configs/es_curve.py:demo
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.es import FAMILIES, LAWS
from bss.laws.es.compare import Comparison, compare
from bss.laws.fitting.estimate import Options
from bss.plots import loss_curves
from bss.points.curve import default_targets, points
from bss.policies import POLICIES
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.measured import Measured
from bss.policies.policy import Basis, Limits
from bss.report import write_report
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import decay_start, late_switch
from bss.sweeps.contenders import Contender, contender_table, decaying
from bss.sweeps.grid import Overlay, expand, overlay, seeded
from bss.sweeps.table import run_table
from bss.training.config import RunConfig
from bss.training.directory import read_status, run_path
from bss.training.execution import Execution
from bss.values import to_dict
from experiments.study import (
    Setup,
    base_run,
    batch_unit,
    check_counts,
    check_parts,
    check_results,
    check_seeds,
    finished,
    make_engine,
    print_price,
    provenance,
    run_experiment,
    say,
    train_all,
    write_results,
)


@dataclass(frozen=True)
class Study:
    """The question: which batches, how long, what the schedule is tested against.

    Attributes:
        title: of the report.
        seeds: each is an initialisation and a data order; batches of one seed share both.
        batches: constant batches, in sequences.
        targets: how many target losses.
        stages: of the derived schedule.
        decay: last part of the tokens decayed to zero in the second comparison.
        late_at: part of the tokens at which the late switch grows the batch.
        late_factor: and by how much.
        policies: whose schedules compete too, by name: registered, or package.module:ATTRIBUTE.
        resamples: bootstrap refits behind each interval.
        results: directory of tables and report.
        setup: model, data, optimizer, horizon, engine.

    Raises:
        InputError: on construction, if a number is out of range: before anything is trained.
    """

    title: str
    batches: tuple[int, ...]
    results: str
    seeds: tuple[int, ...] = (0,)
    targets: int = 5
    stages: int = 4
    decay: float = 0.2
    late_at: float = 0.7
    late_factor: int = 8
    policies: tuple[str, ...] = ()
    resamples: int = 500
    setup: Setup = field(default_factory=Setup)

    def __post_init__(self) -> None:
        check_counts(self, "targets", "stages", "late_factor", "resamples")
        check_parts(self, "decay", "late_at")
        check_seeds(self)
        if self.late_at > 1 - self.decay:
            raise InputError(
                f"late_at is {self.late_at}; expected at most 1 - decay, {1 - self.decay:g}, so "
                "that the late switch comes before the decay"
            )
        for name in self.policies:
            POLICIES[name]
        if len(set(self.batches)) < 4:
            raise InputError(
                f"batches are {list(self.batches)}; expected 4 different ones or more, so that "
                "the laws can be judged on one left out"
            )


def experiment(study: Study) -> None:
    """Runs the study and writes its tables and its report."""
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    base, execution = base_run(study.setup)
    horizon = study.setup.schedule.tokens
    forks = (round(study.late_at * horizon), decay_start(horizon, study.decay))
    execution = replace(execution, forks=forks)
    with make_engine(study.setup) as engine:
        trunks = expand(base, _trunk_overlays(study))
        print_price("1/3 one trunk per batch", trunks)
        trunks = train_all(engine, trunks, execution, "1/3 trunks")
        runs = run_table(Path(execution.runs), trunks)

        say("measuring steps and tokens to each target, fitting the laws")
        targets = default_targets(runs, study.targets, warmup_tokens=study.setup.schedule.warmup)
        measured = points(runs, targets)
        options = Options(study.resamples)
        fits = {name: fit_es(measured, name, options=options) for name in LAWS}
        comparison = compare(measured, tuple(LAWS))
        schedule, law, note = derive_schedule(study, fits, comparison, measured)

        others = other_schedules(study, fits.get(law), measured)
        stable = stable_contenders(study, trunks, schedule, others, runs)
        print_price(
            "2/3 contenders at constant rate", [c.run for c in stable if c.role != "constant"]
        )
        stable = finished(engine, stable, execution, "2/3 contenders")
        decayed = [decaying(c, study.decay) for c in stable]
        print_price(f"3/3 the last {study.decay:.0%} decayed to zero", [c.run for c in decayed])
        decayed = finished(engine, decayed, execution, "3/3 decays")

    contenders = stable + decayed
    plan = overlay(base, {"schedule.batch": str(schedule)})
    results = Path(study.results)
    write_results(
        results,
        {
            "experiment.json": {
                "title": study.title,
                "question": "How large should the batch be, when should it grow, and does "
                "growing it beat the best constant batch at equal tokens?",
                **provenance(to_dict(study), started, [c.run for c in contenders], execution.runs),
            },
            "runs.parquet": runs,
            "points.csv": measured,
            "fits.json": {name: fits[name].to_dict() for name in shown_laws(comparison)},
            "comparison.json": comparison.to_dict(),
            "schedule.json": {
                "batch": str(schedule),
                "law": law,
                "tokens": horizon,
                "seq_len": base.data.seq_len,
                "lr": base.optimizer.lr,
                "warmup": base.schedule.warmup,
                "decay": round(study.decay * horizon),
                "steps": plan.plan().steps,
                "note": note,
            },
            "contenders.csv": contender_table(contenders, execution),
            "throughput.csv": throughput_table(contenders, execution),
        },
    )
    loss_curves(runs, targets).savefig(results / "loss_curves.png", dpi=150)
    report = results.parent / "report.html"
    write_report(results, report)
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {results}")
    print(f"report: {report}")


def _trunk_overlays(study: Study) -> list[Overlay]:
    return seeded({"seed": study.seeds, "schedule.batch": [str(b) for b in study.batches]})


def derive_schedule(
    study: Study, fits: dict[str, EsFit], comparison: Comparison, measured: pd.DataFrame
) -> tuple[BatchSchedule, str, str]:
    """The schedule of the law that predicts left-out batches best and can support one.

    Where no law identifies B_opt, the best measured batch at each target is followed instead.

    Returns:
        The schedule, its law, and a sentence on how it was chosen.
    """
    horizon, limits = study.setup.schedule.tokens, Limits(study.stages, batch_unit(study.setup))
    seq_len = study.setup.text.seq_len
    refused: list[str] = []
    for law in (row["law"] for row in comparison.table):
        try:
            schedule = FollowOptimum()(Basis(seq_len, fits[law]), horizon, limits)
        except InputError as error:
            refused.append(f"{law} ({error})")
            continue
        if not refused:
            return schedule, law, f"{law} predicts left-out batches best"
        note = f"{law} predicts left-out batches best of the laws that give a schedule"
        return schedule, law, f"{note}; without one: {', '.join(refused)}"
    schedule = Measured()(Basis(seq_len, points=measured), horizon, limits)
    note = "no law gives a schedule, so the best measured batch at each target is followed"
    return schedule, "measured", f"{note}; {', '.join(refused)}"


def other_schedules(
    study: Study, fit: EsFit | None, measured: pd.DataFrame
) -> dict[str, BatchSchedule]:
    """What the policies of the study make of the law that was chosen, if any, and the points."""
    basis = Basis(study.setup.text.seq_len, fit, measured)
    limits = Limits(study.stages, batch_unit(study.setup))
    horizon = study.setup.schedule.tokens
    return {name: POLICIES[name](basis, horizon, limits) for name in study.policies}


def shown_laws(comparison: Comparison) -> list[str]:
    """One law of each family, and the joint law that predicts best."""
    best = next(row["law"] for row in comparison.table if LAWS[row["law"]].joint)
    return list(dict.fromkeys([best, *(law.name for law in FAMILIES)]))


def stable_contenders(
    study: Study,
    trunks: list[RunConfig],
    schedule: BatchSchedule,
    others: dict[str, BatchSchedule],
    runs: pd.DataFrame,
) -> list[Contender]:
    """The runs compared at constant rate, for every seed."""
    horizon = study.setup.schedule.tokens
    best = best_constant_batch(runs)
    unit = batch_unit(study.setup)
    average = unit * max(1, round(schedule.mean_batch(horizon) / unit))
    contenders = [
        Contender(f"constant {t.schedule.batch}", "constant", "constant", t) for t in trunks
    ]
    for trunk in trunks:
        if trunk.schedule.batch.constant_batch != best:
            continue
        derived = overlay(trunk, {"schedule.batch": str(schedule)})
        contenders.append(Contender("derived schedule", "schedule", "constant", derived))
        equal = overlay(trunk, {"schedule.batch": str(average)})
        if average not in study.batches:
            contenders.append(Contender(f"constant {average}", "average", "constant", equal))
        late = late_switch(trunk, round(study.late_at * horizon), best * study.late_factor)
        contenders += [
            Contender(n, "policy", "constant", overlay(trunk, {"schedule.batch": str(other)}))
            for n, other in others.items()
        ]
        contenders.append(Contender(f"late {late.schedule.batch}", "late", "constant", late))
    return contenders


def best_constant_batch(runs: pd.DataFrame) -> int:
    """The batch with the lowest final held-out loss, averaged over seeds."""
    losses: dict[int, list[float]] = {}
    for _, run in runs.groupby("run"):
        losses.setdefault(int(run["batch"].iloc[-1]), []).append(float(run["eval_loss"].iloc[-1]))
    return min(losses, key=lambda batch: sum(losses[batch]) / len(losses[batch]))


def throughput_table(contenders: list[Contender], execution: Execution) -> pd.DataFrame:
    """Speed of every batch of every run, and its compilations."""
    rows = []
    for contender in contenders:
        status = read_status(run_path(execution.runs, contender.run))
        rows += [
            {
                "run": contender.run.id,
                "name": contender.name,
                **speed,
                "programs": status["programs"],
                "recompilations": status["recompilations"],
            }
            for speed in status["throughput"]
        ]
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run_experiment(Study, experiment)
