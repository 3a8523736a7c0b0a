"""Train one part and write its tables; see `configs/late_switch.py` for the parts."""

from experiments.late_switch.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
