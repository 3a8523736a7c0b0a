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

from experiments.main import run_experiment
from experiments.optimal_schedule.run import Study, experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
