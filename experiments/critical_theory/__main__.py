"""Why the critical batch size follows the data, in theory, without training.

The exact second moments of mini-batch SGD with averaged iterates on power-law least squares, the
model of Zhang et al. (arXiv 2410.21676).

    python -m experiments.critical_theory --config=configs/critical_theory.py:cpu
"""

from experiments.critical_theory.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
