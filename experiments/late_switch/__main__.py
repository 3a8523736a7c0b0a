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

from bss.sweeps.results import Results
from experiments.late_switch.measure import tables
from experiments.late_switch.runs import say_price, train
from experiments.late_switch.study import Study
from experiments.main import run_experiment


def experiment(study: Study) -> None:
    """Runs the study and writes its tables; or prints its price."""
    if study.dry_run:
        say_price(study)
        return
    results = Results(study)
    with study.training() as (base, trainer):
        trained = train(study, base, trainer)
    results.write(
        tables(study, trained, trainer),
        trainer,
        question="When should the batch grow, and does a late switch win at equal tokens once "
        "rates are tuned and decayed?",
    )


if __name__ == "__main__":
    run_experiment(Study, experiment)
