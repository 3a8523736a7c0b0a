"""What is a law of loss curves worth on schedules that nobody chose?

Schedules and peak rates are drawn from a seed, each with one ending of its rate, and predicted by
the functional law (Li et al., arXiv 2509.19189) as fitted to pilots of all endings, by the constant
of equal steps, and by their mean. All is written down and committed before the first run:

    python -m experiments.predictions.register --config=configs/predictions.py:cpu
    git commit results/predictions/schedules.json
    python -m experiments.predictions --config=configs/predictions.py:cpu

Runs are of seeds that no fit has seen. They are scored once git tells that the file came first.
"""

from dataclasses import replace
from pathlib import Path

from bss.plots.predictions import score_figure
from bss.predictions.ancestry import check_first
from bss.predictions.registration import digest, read_registration
from bss.predictions.score import score, score_entry
from bss.sweeps.results import Results
from bss.sweeps.table import outcomes
from bss.sweeps.trainer import Trainer
from experiments.main import run_experiment
from experiments.predictions.runs import registered_runs
from experiments.predictions.study import Study
from experiments.predictions.table import predictions_table
from experiments.study import base_run


def experiment(study: Study) -> None:
    """Trains what was registered, and scores it."""
    file, runs = study.file, study.setup.engine.runs
    registration = read_registration(file)
    check_first(file, outcomes(Path(runs), ()))
    results = Results(study)
    base, execution = base_run(study.setup)
    planned = registered_runs(study, base, registration)
    execution = replace(execution, registration=digest(file))
    with Trainer(study.open_engine(), execution) as trainer:
        trainer.train(planned, "registered runs")
    ended = outcomes(trainer.runs, registration.runs)
    first = check_first(file, ended)
    scores = score(registration, ended)
    results.write(
        {
            "outcomes.csv": ended,
            "scores.json": score_entry(scores, file, first),
            "predictions.csv": predictions_table(registration, scores, ended, study.seeds),
            "predictions.png": score_figure(scores),
        },
        trainer,
    )


if __name__ == "__main__":
    run_experiment(Study, experiment)
