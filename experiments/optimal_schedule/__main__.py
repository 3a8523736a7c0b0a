"""The optimal batch schedule in theory, without training.

The procedure of Wang et al. (arXiv 2602.14208) on power-law kernel regression, with the exact
recursion and with the functional scaling law (Li et al., arXiv 2509.19189):

1. Compare late with early switches, and find the best switch for each data budget.
2. Measure the catch-up after a switch: the loss gap to the large batch size, and the steps until it
   is closed.
3. Find optimal schedules of easy and hard tasks, and their exponents in the budget.
4. Compare the law with the exact recursion, for several batch and LR schedules. Compute the gain
   from an LR decay.
5. Optimize LR and batch size jointly. Many schedules with one budget have the minimum loss; one of
   them has the fewest steps.

    python -m experiments.optimal_schedule --config=configs/optimal_schedule.py:cpu
"""

from experiments.main import run_experiment
from experiments.optimal_schedule.run import Study, experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
