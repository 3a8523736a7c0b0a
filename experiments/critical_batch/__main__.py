"""The critical batch size against data and model size.

Zhang et al. (arXiv 2410.21676) measure the largest batch size within 20% of linear scaling at
several model sizes and token budgets. This experiment repeats that with intervals, width against
depth, context lengths and LR schedules.

    python -m experiments.critical_batch --config=configs/critical_batch.py:c1-12k
    python -m experiments.critical_batch --config=configs/critical_batch.py:gpu
"""

from experiments.critical_batch.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
