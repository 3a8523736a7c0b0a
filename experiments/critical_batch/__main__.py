"""The critical batch size against data and model size.

Zhang et al. (arXiv 2410.21676) grow model and data together, the data at one model, and the model
at one budget, and measure the largest batch size within 20% of linear scaling. This experiment
repeats that with intervals, other definitions, width against depth, context lengths, LR schedules
and the gradient noise scale.

    python -m experiments.critical_batch --config=configs/critical_batch.py:cpu
    python -m experiments.critical_batch --config=configs/critical_batch.py:paper \
        --config.dry_run=True
"""

from experiments.critical_batch.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
