"""Test whether small models predict batch size and LR of larger ones; see configs/ladder.py.

    python -m experiments.ladder --config=configs/ladder.py:es_99k --config.dry_run=True
    python -m experiments.ladder --config=configs/ladder.py:es_99k

The predictions are in results/predictions/ladder.json, committed before the first part.
"""

from experiments.ladder.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
