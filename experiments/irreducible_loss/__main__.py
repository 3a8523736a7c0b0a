"""Is the L_0 of a fitted E(S) the entropy of the language? On synthetic text it is known.

python -m experiments.irreducible_loss --config=configs/irreducible_loss.py:smoke
"""

from experiments.irreducible_loss.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
