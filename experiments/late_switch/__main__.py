"""Fast catch-up and late switching: when should the batch grow, under each learning-rate schedule?

The procedure of Wang et al. (arXiv 2602.14208), with tuned baselines and the schedules of other
laws beside it:

1. constant batches, each at several rates: trunks;
2. switches small → large at several points, several stages, the schedules of E(S): branches at
   constant rate; one branch serves every budget behind its switch;
3. the functional law fitted to constants and two-stage pilots, from the start that predicts
   left-out pilots best, and the schedules it recommends;
4. all of them with a last part decayed to zero (WSD), by branches;
5. constants and schedules under a cosine, branches sharing what they have in common.

Does late beat constant and early at equal tokens, does that survive decay and tuned rates, how does
the best switch point move with the budget, and does the law predict schedules it has not seen?

    python -m experiments.late_switch --config=configs/late_switch.py:cpu
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit
from bss.points.standings import differences, tuned
from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import (
    Contender,
    constant_contenders,
    contender_table,
    with_rates,
)
from bss.sweeps.price import price
from bss.sweeps.table import run_table
from bss.training.execution import Execution
from bss.values import to_dict
from experiments.late_switch.law import (
    LAW,
    candidates,
    chosen_fit,
    fit_pilots,
    law_schedules,
    law_switch,
    predictions,
    repredicted,
    scores,
    seed_means,
)
from experiments.late_switch.runs import (
    by_law,
    decaying,
    going_on,
    switching,
    under_cosine,
)
from experiments.late_switch.study import Study
from experiments.late_switch.tables import (
    Curve,
    catch_up,
    curves,
    exponent,
    switch_points,
    switches_of,
)
from experiments.study import (
    base_run,
    batch_unit,
    check_results,
    make_engine,
    planned_run,
    priced,
    print_hours,
    print_price,
    provenance,
    run_experiment,
    say,
    write_results,
)


@dataclass(frozen=True)
class Trained:
    """What a study trained, and the law on the way.

    Attributes:
        execution: of the runs at constant rate and under WSD.
        constants: at constant rate.
        stable: they, the switches and the law's schedule, all at constant rate.
        continued: the large batch over more tokens.
        decays: of the stable that take all tokens, with their last part decayed to zero.
        cosines: from the start.
        pilots: what the law was fitted to,
        means: their curves, seeds averaged.
        fits: the law from every start, with each clock.
        fit: the one that is used.
        lawful: the schedules that it recommends, by name.
    """

    execution: Execution
    constants: list[Contender]
    stable: list[Contender]
    continued: list[Contender]
    decays: list[Contender]
    cosines: list[Contender]
    pilots: list[Contender]
    means: pd.DataFrame
    fits: list[CurveFit]
    fit: CurveFit | None
    lawful: dict[str, BatchSchedule]


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    if study.dry_run:
        say_price(study)
        return
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    trained = train(study)
    every = [*trained.stable, *trained.continued, *trained.decays, *trained.cosines]
    runs = trained.execution.runs
    record = {
        "title": study.title,
        "question": "When should the batch grow, and does a late switch win at equal tokens once "
        "rates are tuned and decayed?",
        **provenance(to_dict(study), started, [c.run for c in every], runs),
    }
    files = {"experiment.json": record, "runs.parquet": named_runs(every, Path(runs))}
    tables = final_tables(study, trained) | switch_tables(study, trained) | law_tables(trained)
    write_results(Path(study.results), files | tables | prediction_tables(study, trained))
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


def train(study: Study) -> Trained:
    """Trains all parts, each on what the parts before it found."""
    base, execution = base_run(study.setup)
    execution = replace(execution, forks=study.fork_tokens)
    with make_engine(study.setup) as engine:
        constants = list(constant_contenders(base, study.rates, study.seeds, []))
        constants = priced(engine, constants, execution, "1/5 constants")
        switched = switching(study, base, constants, execution)
        stable = [*constants, *priced(engine, switched, execution, "2/5 switches")]
        continued = going_on(study, constants, execution)
        continued = priced(engine, continued, execution, "2/5 the large batch goes on")

        say("fitting the functional law")
        pilots = [c for c in stable if c.role in ("constant", "late") and is_whole(study, c)]
        means = seed_means(Path(execution.runs), [c.run for c in pilots])
        starts = [round(part * study.tokens) for part in study.starts]
        fits = fit_pilots(means, starts, base.schedule.warmup, study.resamples)
        fit = chosen_fit(fits)
        unit = batch_unit(study.setup)
        lawful = law_schedules(fit, base, study.shared_rate, study.decay, unit, study.large)

        by_rate = by_law(study, base, lawful, stable, execution)
        stable += priced(engine, by_rate["constant"], execution, "3/5 the law's schedules")
        whole = [c for c in stable if is_whole(study, c)]
        decays = decaying(study, [*whole, *by_rate["decay"]], stable, execution)
        decays = priced(engine, decays, execution, "4/5 WSD")
        cosines, own = under_cosine(study, base, by_rate["cosine"], execution)
        cosines = priced(engine, cosines, own, "5/5 cosine")
    return Trained(
        execution, constants, stable, continued, decays, cosines, pilots, means, fits, fit, lawful
    )


def ended(study: Study, trained: Trained) -> list[Contender]:
    """What is compared at equal tokens."""
    return [*(c for c in trained.stable if is_whole(study, c)), *trained.decays, *trained.cosines]


def final_tables(study: Study, trained: Trained) -> dict[str, pd.DataFrame]:
    """Final losses at every rate, at the best, and their differences."""
    contenders = ended(study, trained)
    final = with_rates(contender_table(contenders, trained.execution), contenders)
    names = list(dict.fromkeys(c.name for c in contenders if c.role != "constant"))
    conditions = {
        "tuned": tuned(final),
        "shared": final.loc[np.isclose(final["peak_lr"], study.shared_rate)],
    }
    apart = [differences(table, names).assign(rates=kind) for kind, table in conditions.items()]
    return {
        "every_rate.csv": final,
        "contenders.csv": conditions["tuned"],
        "differences.csv": pd.concat(apart),
    }


def switch_tables(study: Study, trained: Trained) -> dict[str, pd.DataFrame]:
    """Catch-up after each switch, and the best switch of each budget with its exponent."""
    runs = Path(trained.execution.runs)
    small, large = (
        at_rate(study, trained.constants, batch, runs) for batch in (study.small, study.large)
    )
    late = [c for c in trained.stable if c.role == "late"]
    every, whole = (
        {at: curves(runs, seeds) for at, seeds in switches_of(some, study.shared_rate)}
        for some in (late, [c for c in late if is_whole(study, c)])
    )
    budgets = [round(part * study.tokens) for part in study.budgets]
    points = pd.concat(
        [switch_points(every, small, large, budgets), law_points(study, trained.fit)]
    )
    continued = curves(runs, [c.run for c in trained.continued]) or large
    exponents = [exponent(points, source) for source in ("measured", "law")]
    return {
        "catch_up.csv": catch_up(whole, small, large, continued),
        "switch_points.csv": points,
        "exponents.csv": pd.DataFrame(exponents),
    }


def law_tables(trained: Trained) -> dict[str, Any]:
    """The law, what it was fitted to and what it recommends."""
    return {
        "pilots.parquet": trained.means,
        "fit.json": trained.fit.to_dict() if trained.fit else {},
        "schedules.json": {name: str(schedule) for name, schedule in trained.lawful.items()},
    }


def prediction_tables(study: Study, trained: Trained) -> dict[str, pd.DataFrame]:
    """What the law predicts of runs it has not seen, beside what the other fits would have."""
    contenders = ended(study, trained)
    flat = [c for c in contenders if c.role == "constant"]
    unseen = [
        c for c in contenders if c.role != "constant" and (c.role, c.ending) != ("late", "constant")
    ]

    runs = Path(trained.execution.runs)
    table = predictions(trained.fit, trained.pilots, unseen, flat, runs)
    tried = [(fit, repredicted(table, fit, unseen)) for fit in trained.fits]
    return {
        "candidates.csv": candidates(tried, trained.fit, study.shared_rate),
        "predictions.csv": table,
        "scores.csv": scores(table, study.shared_rate),
    }


def say_price(study: Study) -> None:
    """Prints what each part costs, the law's schedules as if from the start; no data are read."""
    base = planned_run(study.setup)
    execution = Execution(buckets=study.setup.engine.buckets, forks=study.fork_tokens)
    constants = list(constant_contenders(base, study.rates, study.seeds, []))
    switched = switching(study, base, constants, execution)
    stable = [*constants, *switched]
    stages = BatchSchedule.stages([study.small, study.large], study.tokens)
    lawful = by_law(study, base, dict.fromkeys(LAW.values(), stages), [], execution)
    whole = [c for c in stable if is_whole(study, c)]
    parts = {
        "constants": constants,
        "switches": [*switched, *going_on(study, constants, execution)],
        "law": lawful["constant"],
        "WSD": decaying(study, [*whole, *lawful["decay"]], stable, execution),
        "cosine": under_cosine(study, base, lawful["cosine"], execution)[0],
    }
    costs = {name: price([c.run for c in some]).flops for name, some in parts.items()}
    for name, some in parts.items():
        print_price(name, [c.run for c in some])
    print_hours(costs, study.peak_flops, study.mfu)


def is_whole(study: Study, contender: Contender) -> bool:
    """Whether it takes all tokens; others serve the best switch point alone."""
    return contender.run.schedule.tokens == study.tokens


def at_rate(
    study: Study, constants: Sequence[Contender], batch: int, runs: Path
) -> dict[int, Curve]:
    """The curves of a constant batch at the shared rate, by seed."""
    same = BatchSchedule.constant(batch)
    chosen = [c.run for c in constants if c.run.schedule.batch == same]
    return curves(runs, [r for r in chosen if np.isclose(r.optimizer.lr, study.shared_rate)])


def law_points(study: Study, fit: CurveFit | None) -> pd.DataFrame:
    """The best switch by the law at budgets its losses reach, and beyond; as `switch_points`."""
    rows: list[dict[str, Any]] = []
    warmup = study.setup.schedule.warmup
    budgets = [round(part * study.tokens) for part in (*study.budgets, *study.extrapolated)]
    for budget in budgets:
        if fit is not None and budget <= fit.since:
            continue
        try:
            if fit is None:
                raise InputError("there is no fit")
            after, loss = law_switch(
                fit, budget, study.shared_rate, warmup, study.small, study.large
            )
        except InputError as error:
            say(f"the law gives no switch point: {error}")
            break
        # At the bounds of the search it is no optimum.
        inside = 0.95 * budget > after > 3 * study.large * study.setup.text.seq_len
        rows.append(
            {"budget": budget, "source": "law", "after": after, "interior": inside, "loss": loss}
        )
    return pd.DataFrame(rows)


def named_runs(contenders: Sequence[Contender], runs: Path) -> pd.DataFrame:
    """The run table of all contenders with their names and kinds of rate, equal runs once."""
    first = {contender.run.id: contender for contender in reversed(contenders)}
    table = run_table(runs, [contender.run for contender in first.values()])
    table["name"] = [first[run].name for run in table["run"]]
    table["rate"] = [first[run].ending for run in table["run"]]
    return table


if __name__ == "__main__":
    run_experiment(Study, experiment)
