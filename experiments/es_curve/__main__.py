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

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from bss.laws import EsFit
from bss.laws.base import Options
from bss.plots import loss_curves
from bss.points.curve import default_targets, points
from bss.policies import POLICIES
from bss.policies.measured import derive_schedule
from bss.policies.policy import Basis, Limits
from bss.report import write_report
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import decay_start, late_switch
from bss.sweeps.contenders import Contender, contender_table, decaying
from bss.sweeps.grid import expand, overlay, seeded
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus
from experiments.es_curve.study import Study
from experiments.es_wsd_archive.measure import fit_laws
from experiments.main import run_experiment
from experiments.study import batch_unit, say


def experiment(study: Study) -> None:
    """Runs the study and writes its tables and its report."""
    results = Results(study)
    horizon, warmup = study.setup.schedule.tokens, study.setup.schedule.warmup
    forks = (round(study.late_at * horizon), decay_start(horizon, study.decay))
    with study.training(forks) as (base, trainer):
        batches = [str(batch) for batch in study.batches]
        trunks = expand(base, seeded({"seed": study.seeds, "schedule.batch": batches}))
        trunks = trainer.train(trunks, "1/3 one trunk per batch")
        runs = run_table(trainer.runs, trunks)

        say("measuring steps and tokens to each target, fitting the laws")
        targets = default_targets(runs, study.targets, warmup_tokens=warmup)
        measured = points(runs, targets)
        laws = fit_laws(measured, Options(study.resamples))
        limits = Limits(study.stages, batch_unit(study.setup))
        schedule, law, note = derive_schedule(laws.best, measured, horizon, limits)

        others = other_schedules(study, laws.best, measured)
        stable = contenders(study, trunks, schedule, others, runs)
        stable = trainer.contend(stable, "2/3 contenders at constant rate")
        decayed = [decaying(contender, study.decay) for contender in stable]
        decayed = trainer.contend(decayed, f"3/3 the last {study.decay:.0%} decayed to zero")

    plan = overlay(base, {"schedule.batch": schedule})
    compared = [*stable, *decayed]
    results.write(
        {
            "runs.parquet": runs,
            "points.csv": measured,
            "fits.json": laws.fits,
            "comparison.json": laws.comparison,
            "schedule.json": described(study, plan) | {"law": law, "note": note},
            "contenders.csv": contender_table(compared, trainer.statuses).drop(columns="peak_lr"),
            "throughput.csv": throughput_table(compared, trainer.statuses),
            "loss_curves.png": loss_curves(runs, targets),
        },
        trainer,
        question="How large should the batch be, when should it grow, and does growing it beat "
        "the best constant batch at equal tokens?",
    )
    report = results.directory.parent / "report.html"
    write_report(results.directory, report)
    print(f"report: {report}")


def other_schedules(
    study: Study, fit: EsFit | None, measured: pd.DataFrame
) -> dict[str, BatchSchedule]:
    """What the policies of the study make of the law that was chosen, if any, and the points."""
    basis = Basis(study.setup.text.seq_len, fit, measured)
    limits = Limits(study.stages, batch_unit(study.setup))
    horizon = study.setup.schedule.tokens
    return {name: POLICIES[name](basis, horizon, limits) for name in study.policies}


def contenders(
    study: Study,
    trunks: list[RunConfig],
    schedule: BatchSchedule,
    others: dict[str, BatchSchedule],
    runs: pd.DataFrame,
) -> list[Contender]:
    """The runs compared at constant rate, for every seed."""
    horizon, unit = study.setup.schedule.tokens, batch_unit(study.setup)
    best = best_constant_batch(runs)
    average = unit * max(1, round(schedule.mean_batch(horizon) / unit))
    tried = [("derived schedule", "schedule", schedule)]
    if average not in study.batches:
        tried.append((f"constant {average}", "average", BatchSchedule.constant(average)))
    tried += [(name, "policy", other) for name, other in others.items()]
    entries = [Contender(f"constant {t.schedule.batch}", "constant", "constant", t) for t in trunks]
    for trunk in (t for t in trunks if t.schedule.batch.constant_batch == best):
        for name, role, batch in tried:
            run = overlay(trunk, {"schedule.batch": str(batch)})
            entries.append(Contender(name, role, "constant", run))
        late = late_switch(trunk, round(study.late_at * horizon), best * study.late_factor)
        entries.append(Contender(f"late {late.schedule.batch}", "late", "constant", late))
    return entries


def best_constant_batch(runs: pd.DataFrame) -> int:
    """The batch with the lowest final held-out loss, averaged over seeds."""
    last = runs.drop_duplicates("run", keep="last")
    losses = last.pivot_table("eval_loss", "batch")["eval_loss"]
    return int(losses.index[losses.argmin()])


def described(study: Study, run: RunConfig) -> dict[str, Any]:
    """The derived schedule and the learning rate that it was tested under."""
    return {
        "batch": str(run.schedule.batch),
        "tokens": run.schedule.tokens,
        "seq_len": run.data.seq_len,
        "lr": run.optimizer.lr,
        "warmup": run.schedule.warmup,
        "decay": round(study.decay * run.schedule.tokens),
        "steps": run.plan().steps,
    }


def throughput_table(
    contenders: Sequence[Contender], statuses: Mapping[str, RunStatus]
) -> pd.DataFrame:
    """Speed of every batch of every run, and its compilations."""
    rows = []
    for contender in contenders:
        run, status = contender.run.id, statuses[contender.run.id]
        compiled = {"programs": status.programs, "recompilations": status.recompilations}
        named = {"run": run, "name": contender.name}
        rows += [named | vars(speed) | compiled for speed in status.throughput]
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run_experiment(Study, experiment)
