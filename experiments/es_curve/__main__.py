"""E(S) at one shared learning rate, and the batch schedule that follows from it.

python -m experiments.es_curve --config=configs/es_curve.py:demo
"""

from experiments.es_curve.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
