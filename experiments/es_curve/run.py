"""E(S) under WSD, end to end: train, measure, fit, schedule, and test the schedule.

The procedure of Zhou et al. (arXiv 2601.05034), at one shared LR:

1. Train one run per batch size at constant LR. It serves every target loss.
2. Measure steps S and tokens E to each target loss, from held-out losses.
3. Fit E(S), and choose the law that predicts left-out batch sizes best.
4. Derive a batch schedule from the fit: B_opt along the loss.
5. Compare the schedule at equal tokens with every fixed batch size of the sweep and with one late
   switch. Also compare it with the fixed batch size equal to its mean, which takes equal steps.
   Each run is trained at constant LR. Forks from checkpoints decay the LR to zero in the last part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from bss.laws import fit_es
from bss.laws.base import DRAWS, Options
from bss.laws.es import FAMILIES, LAWS
from bss.laws.es.compare import compare
from bss.points.curve import default_targets, points
from bss.policies.derive import derive_schedule
from bss.policies.policy import Limits
from bss.report import write_report
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import decay_start, decayed, late_switch
from bss.sweeps.contenders import Contender, contender_table, decaying
from bss.sweeps.grid import expand, overlay, seeded
from bss.sweeps.results import Results
from bss.sweeps.setup import planned_run
from bss.sweeps.table import run_table
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy, say


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One size of the experiment; fractions are of the tokens of a run.

    Attributes:
        batches: Fixed batch sizes, in sequences.
        targets: Number of target losses.
        stages: Stages of the derived schedule.
        decay: Last fraction, decayed to zero in the second comparison.
        late_at: Fraction at which the late switch grows the batch.
        late_factor: Factor of the late switch.
    """

    batches: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)
    targets: int = 5
    stages: int = 4
    decay: float = 0.2
    late_at: float = 0.7
    late_factor: int = 8

    @property
    def unit(self) -> int:
        """The smallest shape bucket; derived batch sizes are multiples of it."""
        return min(self.setup.engine.buckets, default=1)


def experiment(study: Study) -> None:
    """Train the study and write its tables and its report."""
    results = Results(study)
    decayed(planned_run(study.setup), study.decay)  # refuses an LR schedule without a decay
    forks = (round(study.late_at * study.tokens), decay_start(study.tokens, study.decay))
    with study.training(forks) as (base, trainer):
        batches = [str(batch) for batch in study.batches]
        constants = expand(base, seeded({"seed": study.seeds, "schedule.batch": batches}))
        constants = trainer.train(constants, "1/3 one run per batch size")
        runs = run_table(trainer.runs, constants)

        say("measuring steps and tokens to each target, fitting the laws")
        targets = default_targets(runs, study.targets, warmup_tokens=base.schedule.warmup)
        measured = points(runs, targets)
        best = fit_es(measured, options=Options(study.resamples, draws=DRAWS))
        comparison = best.comparison or compare(measured)
        options = Options(study.resamples)
        joint = next(row["law"] for row in comparison.table if LAWS[row["law"]].joint)
        named = dict.fromkeys([joint, *(law.name for law in FAMILIES)])
        others = [law for law in named if law != best.law_name]
        fits = {best.law_name: best}
        fits |= {law: fit_es(measured, law, options=options) for law in others}
        limits = Limits(study.stages, study.unit)
        derived = derive_schedule(best, measured, study.tokens, limits)
        schedule = derived.schedule

        stable = contenders(study, constants, schedule, runs)
        stable = trainer.contend(stable, "2/3 compared runs at constant LR")
        decays = [decaying(contender, study.decay) for contender in stable]
        decays = trainer.contend(decays, f"3/3 the last {study.decay:.0%} decayed to zero")

    compared = [*stable, *decays]
    results.write(
        {
            "runs.parquet": runs,
            "points.csv": measured,
            "fits.json": fits,
            "comparison.json": comparison,
            "schedule.json": {"batch": str(schedule), "law": derived.law, "note": derived.note},
            "contenders.csv": contender_table(compared, trainer.statuses).drop(columns="peak_lr"),
        },
        trainer,
        question="How large should the batch be, when should it grow, and does growing it beat "
        "the best fixed batch size at equal tokens?",
    )
    report = results.directory.parent / "report.html"
    write_report(results.directory, report)
    print(f"report: {report}")


def contenders(
    study: Study, constants: Sequence[RunConfig], schedule: BatchSchedule, runs: pd.DataFrame
) -> list[Contender]:
    """Return the runs that are compared at constant LR, for every seed."""
    unit = study.unit
    best = best_constant_batch(runs)
    average = unit * max(1, round(schedule.mean_batch(study.tokens) / unit))
    tried = [("derived schedule", "schedule", str(schedule))]
    if average not in study.batches:
        tried.append((f"constant {average}", "average", str(average)))
    found = [
        Contender(f"constant {t.schedule.batch}", "constant", "constant", t) for t in constants
    ]
    for trunk in (t for t in constants if t.schedule.batch.constant_batch == best):
        for name, role, batch in tried:
            found.append(
                Contender(name, role, "constant", overlay(trunk, {"schedule.batch": batch}))
            )
        late = late_switch(trunk, round(study.late_at * study.tokens), best * study.late_factor)
        found.append(Contender(f"late {late.schedule.batch}", "late", "constant", late))
    return found


def best_constant_batch(runs: pd.DataFrame) -> int:
    """Return the batch size with the lowest final held-out loss, mean over seeds."""
    last = runs.drop_duplicates("run", keep="last")
    losses = last.pivot_table("eval_loss", "batch")["eval_loss"]
    return int(losses.index[losses.argmin()])
