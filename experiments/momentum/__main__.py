"""Effect of Adam's beta1 on the losses of large batch sizes; parts are in configs/momentum.py.

    python -m experiments.momentum --config=configs/momentum.py:grid

The predictions are in results/predictions/momentum.json, committed before the first run.
"""

from experiments.main import run_experiment
from experiments.momentum.run import Study, experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
