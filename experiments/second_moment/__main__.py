"""What decides the best batch size: the second moment, the LR or the LR phase?

Adam's second moment is kept per step (e.g. beta2 0.95) or per token (a half-life for all batch
sizes, Marek et al., arXiv 2507.07101). Per step its average spans fewer tokens at a small batch
size, per token fewer steps at a large one. The parts are in configs/second_moment.py; what was
expected is in results/predictions/second_moment.json, committed before the first run.

    python -m experiments.second_moment --config=configs/second_moment.py:rules
"""

from experiments.main import run_experiment
from experiments.second_moment.run import Study, experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
