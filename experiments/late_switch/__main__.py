"""When should the batch grow, under each LR schedule?

Does a late switch beat constants and early switches at equal tokens, also with tuned learning rates
and after a decay? How does the best switch point move with the budget? Does the functional law
predict schedules that it was not fitted to? `run.py` lists what is trained.

    python -m experiments.late_switch --config=configs/late_switch.py:cpu
"""

from experiments.late_switch.analysis import experiment
from experiments.late_switch.run import Study
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
