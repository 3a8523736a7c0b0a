"""What is a law of loss curves worth on schedules that nobody chose?

Schedules and peak rates are drawn from a seed, each with one ending of its rate, and predicted by
the functional law (Li et al., arXiv 2509.19189) as fitted to pilots of all endings, by the constant
of equal steps, and by their mean. All is written down and committed before the first run:

    python -m experiments.predictions.register --config=configs/predictions.py:cpu
    git commit results/predictions/schedules.json
    python -m experiments.predictions --config=configs/predictions.py:cpu

Runs are of seeds that no fit has seen. They are scored once git tells that the file came first.
"""

from collections.abc import Sequence

import pandas as pd

from bss.plots.predictions import score_figure
from bss.predictions.ancestry import check_first
from bss.predictions.registration import Registration, read_registration
from bss.predictions.score import LAW, Score, score, score_entry
from bss.sweeps.results import Results
from bss.sweeps.table import outcomes
from experiments.main import run_experiment
from experiments.predictions.study import Study, registered_runs


def experiment(study: Study) -> None:
    """Trains what was registered, and scores it."""
    file = study.file
    registration = read_registration(file)
    results = Results(study)
    with study.training(registration=str(file)) as (base, trainer):
        trainer.train(registered_runs(study, base, registration), "registered runs")
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


def predictions_table(
    registration: Registration, score: Score, ended: pd.DataFrame, seeds: Sequence[int]
) -> pd.DataFrame:
    """Measured losses and every prediction of them, in nats.

    Args:
        registration: what was predicted, the runs of a schedule in the order of the seeds.
        found: its score.
        ended: how the runs ended, as `bss.sweeps.table.outcomes` has them.
        seeds: of the runs.

    Returns:
        schedule, batch, ending, peak_lr, measured (the mean; empty where a run failed), seed_S for
        each seed, law with its interval low and high, covered, and each other predictor by name.
    """
    losses = ended.set_index("run")[registration.metric]
    rows = []
    for one, scored in zip(registration.predictions, score.schedules, strict=True):
        row = {"schedule": one.name, "batch": str(one.schedule and one.schedule.batch)}
        row |= {"ending": one.ending, "peak_lr": one.peak_lr, "measured": scored.measured}
        row |= {f"seed_{seed}": losses[run] for seed, run in zip(seeds, one.runs, strict=True)}
        row |= {LAW: one.loss.value, "low": one.loss.low, "high": one.loss.high}
        rows.append(row | {"covered": scored.covered} | scored.predicted)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run_experiment(Study, experiment)
