"""The optimal batch schedule in theory, without training.

The procedure of Wang et al. (arXiv 2602.14208) on power-law kernel regression, with the exact
recursion and with the functional scaling law (Li et al., arXiv 2509.19189):

1. late against early switches, and the best switch against the data budget;
2. fast catch-up: the gap to the large batch after a switch, and the steps till it is closed;
3. optimal schedules of easy and hard tasks, and their exponents in the budget;
4. the law against the exact recursion, for several batch and learning-rate schedules, and what a
   decay buys;
5. the joint optimum of rate and batch: one loss, one budget, many schedules, one with the fewest
   steps.

    python -m experiments.optimal_schedule --config=configs/optimal_schedule.py:cpu
"""

import pandas as pd

from bss.sweeps.results import Results
from experiments.main import run_experiment
from experiments.optimal_schedule.measure import (
    catch_up,
    catch_up_times,
    early_and_late,
    joint_family,
    law_against_exact,
    optima,
    switching,
)
from experiments.optimal_schedule.rates import decays, law_under_rates
from experiments.optimal_schedule.study import Study
from experiments.study import say


def experiment(study: Study) -> None:
    """Computes every part and writes its tables and figures."""
    results = Results(study)
    files, exponents = {}, []
    computed = (
        *(switching, early_and_late, catch_up, catch_up_times, optima),
        *(law_against_exact, law_under_rates, decays, joint_family),
    )
    for part in computed:
        say(f"{part.__name__.replace('_', ' ')} …")
        tables, rows = part(study)
        files |= tables
        exponents += rows
    measured = pd.DataFrame(exponents)
    results.write(
        {"exponents.csv": measured, **files},
        question="When should the batch grow, in the theory, and how do its powers show?",
    )
    print(measured.to_string(index=False, float_format=lambda value: f"{value:.4f}"))


if __name__ == "__main__":
    run_experiment(Study, experiment)
