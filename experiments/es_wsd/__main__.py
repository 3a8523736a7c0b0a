"""Three E(S) under WSD, at a shared rate and at tuned rates, and the schedules they call for.

Zhou et al. (arXiv 2601.05034) read E(S) off the stable phase at one learning rate. A team wants
the loss after the decay, at a tuned rate. So E(S) is measured three times from the same trunks, on
*stable* losses, on *averaged* weights, and on *annealed* losses (decay branches from log-spaced
points of each trunk); each at the shared rate and on the learning-rate envelope. For each: do the
curves of two batches cross, is B_opt inside the batches measured, does it rise as the loss falls?
Then every contender gets three rates about its own optimum, and ends at equal tokens.

    python -m experiments.es_wsd --config=configs/es_wsd.py:cpu
"""

import itertools

import pandas as pd

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.points.crossings import crossings, optima
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.late_switch import LateSwitch
from bss.policies.law_optimum import LawOptimum
from bss.policies.measured import FollowMeasured
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.stats import Comparison
from bss.sweeps.branching import decay_branch, decay_start
from bss.sweeps.contenders import (
    Contender,
    constant_contenders,
    contender_table,
    decaying,
    growing_contenders,
    late_contenders,
)
from bss.sweeps.grid import Overlay, expand, overlay, seeded
from bss.sweeps.price import price
from bss.sweeps.results import Results
from bss.sweeps.setup import planned_run
from bss.sweeps.table import finals, run_table
from bss.training.run_config import RunConfig
from experiments.es_wsd.measure import (
    Laws,
    answer,
    at_rate,
    final_rows,
    fit_laws,
    horizon_table,
    measure,
)
from experiments.es_wsd.study import Study
from experiments.main import run_experiment
from experiments.study import batch_unit, say


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    if study.dry_run:
        say_price(study)
        return
    results = Results(study)
    options, shared = Options(study.resamples), study.shared_rate
    with study.training(forks(study)) as (base, trainer):
        trunks = expand(base, trunk_overlays(study))
        trunks = trainer.train(trunks, "1/4 trunks")
        decays = trainer.train(annealed(study, trunks), "2/4 decay branches")

        runs = run_table(trainer.runs, trunks)
        ended = final_rows(run_table(trainer.runs, decays))
        measured = measure(study, runs, ended)
        fits = {key: fit_laws(table, options) for key, table in measured.items()}

        derived = derived_schedules(study, fits, measured)
        stable = trainer.contend(contenders(study, base, derived), "3/4 contenders")
        decayed = [decaying(contender, study.decay) for contender in stable]
        decayed = trainer.contend(decayed, "4/4 their decays")
    compared = [*stable, *decayed]
    lasts = finals(decays, trainer.statuses)
    horizons = {"shared": at_rate(lasts, shared), "envelope": lasts}
    tables = [(kind, rates, table) for (kind, rates), table in measured.items()]
    results.write(
        {
            "runs.parquet": runs,
            "annealed.parquet": ended,
            "points.csv": pd.concat([table.assign(rates=rates) for _, rates, table in tables]),
            "fits.json": {", ".join(key): laws for key, laws in fits.items()},
            "answers.csv": pd.DataFrame([answer(*entry) for entry in tables]),
            "crossings.csv": pd.concat(
                [crossings(table).assign(kind=kind, rates=rates) for kind, rates, table in tables]
            ),
            "horizons.csv": pd.concat(
                [
                    horizon_table(some, fits["annealed", rates].best_surface).assign(rates=rates)
                    for rates, some in horizons.items()
                ]
            ),
            "schedules.json": derived,
            "contenders.csv": Comparison(contender_table(compared, trainer.statuses)).tuned().table,
        },
        trainer,
    )


def forks(study: Study) -> tuple[int, ...]:
    """Where runs keep a checkpoint: late switches, last stages, and every decay's start."""
    horizon = study.setup.schedule.tokens
    starts = [decay_start(end, study.decay) for end in study.ends]
    return (round(study.late_at * horizon), decay_start(horizon, study.settle), *starts)


def say_price(study: Study) -> None:
    """Prints what the measurement costs, and the most its contenders can; no data are read."""
    trunks = expand(planned_run(study.setup), trunk_overlays(study))
    # Nine contenders at most are trained from the start, at three rates, and decayed.
    most = 9 * 3 * len(study.seeds) * (1 + study.decay)
    study.print_hours(
        {
            "trunks": price(trunks),
            "decays": price(annealed(study, trunks)),
            "contenders": price(trunks[:1]).times(most),
        }
    )


def trunk_overlays(study: Study) -> list[Overlay]:
    """One constant-rate run for each batch, rate and seed; every batch has the shared rate too."""
    overlays = []
    for entry in study.grid:
        rates = sorted({*entry.rates, study.shared_rate})
        axes = {"seed": study.seeds, "optimizer.lr": rates, "schedule.batch": [str(entry.batch)]}
        overlays += seeded(axes)
    return overlays


def annealed(study: Study, trunks: list[RunConfig]) -> list[RunConfig]:
    """Every trunk's branches, whose rate decays to zero over the last part of each horizon."""
    return [
        decay_branch(overlay(trunk, {"schedule.tokens": end}), study.decay)
        for trunk, end in itertools.product(trunks, study.ends)
    ]


def derived_schedules(
    study: Study,
    fits: dict[tuple[str, str], Laws],
    measured: dict[tuple[str, str], pd.DataFrame],
) -> dict[str, BatchSchedule]:
    """The schedules that the measurements call for, by name."""
    horizon, seq_len = study.setup.schedule.tokens, study.setup.text.seq_len

    def follow(kind: str) -> BatchSchedule:
        """B_opt along the loss by a law, or by the measured batches where no law identifies it."""
        points = measured[kind, "shared"]
        basis = Basis(seq_len, fits[kind, "shared"].best, points)
        limits = Limits(study.stages, batch_unit(study.setup))
        try:
            return FollowOptimum()(basis, horizon, limits)
        except InputError as error:
            say(f"{error}; the best measured batches are followed")
            return FollowMeasured()(basis, horizon, limits)

    def late(points: pd.DataFrame) -> BatchSchedule:
        """A late switch from the batch with the fewest tokens to the lowest target."""
        policy = LateSwitch(study.late_at, study.late_factor, int(optima(points)[-1].batch))
        return policy(Basis(seq_len), horizon, Limits())

    stable = measured["stable", "shared"]
    clock = Basis(seq_len, fit_es(stable, "surface, Adam clock", options=Options(1)))
    return {
        "B_opt along the stable loss": follow("stable"),
        "B_opt along the annealed loss": follow("annealed"),
        "the surface's own optimum": LawOptimum(study.settle)(
            clock, horizon, Limits(allowed=tuple(study.rates))
        ),
        "late": late(stable),
        "late, annealed": late(measured["annealed", "shared"]),
        "late, tuned": late(measured["annealed", "envelope"]),
    }


def contenders(study: Study, base: RunConfig, derived: dict[str, BatchSchedule]) -> list[Contender]:
    """The constants and the derived schedules at their rates and seeds, equal schedules once."""
    both = ("none", "sqrt")
    common = (base, study.rates, study.seeds)
    names = ("B_opt along the stable loss", "B_opt along the annealed loss")
    (stable, annealed), late = (derived[name] for name in names), derived["late"]
    own = derived["the surface's own optimum"]
    entries = [*constant_contenders(*common, [stable, late])]
    entries += growing_contenders(*common, names[0], stable, both)
    if annealed != stable:
        entries += growing_contenders(*common, names[1], annealed)
    if len(own.batches) == 2:
        entries += late_contenders(*common, own, name="the surface's own optimum")
    entries += late_contenders(*common, late, both)
    for other in dict.fromkeys((derived["late, annealed"], derived["late, tuned"])):
        if other != late:
            entries += late_contenders(*common, other)
    return entries


if __name__ == "__main__":
    run_experiment(Study, experiment)
