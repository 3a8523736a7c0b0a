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

from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import constant_contenders
from bss.sweeps.price import price
from experiments.late_switch.law import LAW
from experiments.late_switch.measure import (
    final_tables,
    law_tables,
    named_runs,
    prediction_tables,
    switch_tables,
)
from experiments.late_switch.runs import (
    by_law,
    decaying,
    going_on,
    is_whole,
    switching,
    under_cosine,
)
from experiments.late_switch.study import Study
from experiments.late_switch.trained import train
from experiments.main import run_experiment
from experiments.results import Results
from experiments.study import base_run, planned_run, say
from experiments.trainer import Trainer


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    if study.dry_run:
        say_price(study)
        return
    results = Results(study)
    base, execution = base_run(study.setup)
    with Trainer(study.setup.engine, execution) as trainer:
        trained = train(study, base, trainer)
    results.write(
        {
            "runs.parquet": named_runs(trained.contenders, trainer.runs),
            **final_tables(study, trained, trainer),
            **switch_tables(study, trained, trainer),
            **law_tables(trained),
            **prediction_tables(study, trained, trainer),
        },
        trainer,
        question="When should the batch grow, and does a late switch win at equal tokens once "
        "rates are tuned and decayed?",
    )


def say_price(study: Study) -> None:
    """Prints what each part costs, the law's schedules as if from the start; no data are read."""
    base = planned_run(study.setup)
    constants = list(constant_contenders(base, study.rates, study.seeds, []))
    switched = switching(study, base, constants)
    stable = [*constants, *switched]
    stages = BatchSchedule.stages([study.small, study.large], study.tokens)
    lawful = by_law(study, base, dict.fromkeys(LAW.values(), stages), [])
    whole = [c for c in stable if is_whole(study, c)]
    parts = {
        "constants": constants,
        "switches": [*switched, *going_on(study, constants)],
        "law": lawful["constant"],
        "WSD": decaying(study, [*whole, *lawful["decay"]], stable),
        "cosine": under_cosine(study, base, lawful["cosine"])[0],
    }
    prices = {name: price([c.run for c in some]) for name, some in parts.items()}
    for name, cost in prices.items():
        say(f"{name}: {cost}")
    study.print_hours({name: cost.flops for name, cost in prices.items()})


if __name__ == "__main__":
    run_experiment(Study, experiment)
