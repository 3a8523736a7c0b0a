"""Train one part and write its tables; see `configs/es_wsd.py` for the parts."""

from experiments.es_wsd.run import Study, experiment
from experiments.main import run_experiment

if __name__ == "__main__":
    run_experiment(Study, experiment)
