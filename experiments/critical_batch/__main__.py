"""The critical batch size: measured, fitted, and whether it follows the data or the model.

Zhang et al. (arXiv 2410.21676) grow model and data together, the data at one model, and the model
at one budget of data, and read the largest batch within 20% of linear scaling off each. Here with
intervals, and with the other things it may hang on: the definition, width against depth, the
context, the learning-rate schedule; and beside it the gradient noise scale of the same runs.

    python -m experiments.critical_batch --config=configs/critical_batch.py:cpu
    python -m experiments.critical_batch --config=configs/critical_batch.py:paper \
        --config.dry_run=True
"""

import pandas as pd

from bss.plots.critical import critical_figure
from bss.sweeps.results import Results
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.critical_batch.measure import fit_design, measure, next_trials, repeats
from experiments.critical_batch.schedules import comparison_table, comparison_trials
from experiments.critical_batch.study import Study
from experiments.critical_batch.tables import tables
from experiments.critical_batch.trials import Trial, merged, say_price, sweep
from experiments.main import run_experiment
from experiments.study import say


def experiment(study: Study) -> None:
    """Runs the study and writes its tables and figures; or prints its price."""
    if study.dry_run:
        say_price(study)
        return
    results = Results(study)
    with study.training() as (base, trainer):
        trials, measured = swept(study, trainer, base)
        others = compared(study, trainer, trials, measured)
    say("measuring steps to the targets, fitting the laws")
    fits = {d.name: fit for d in study.designs if (fit := fit_design(study, d, measured))}
    files = tables(study, trials, measured, fits)
    files |= {f"critical_{name}.png": critical_figure(fit) for name, fit in fits.items()}
    if study.schedules is not None:
        files["schedules.csv"] = comparison_table(
            study, study.schedules, trials, measured, others, trainer.runs
        )
    results.write(files, trainer)


def swept(study: Study, trainer: Trainer, base: RunConfig) -> tuple[list[Trial], pd.DataFrame]:
    """Every trial that finished, and the points they make: the sweep, its mending, the seeds."""
    runs = trainer.runs
    trials = trainer.contend(merged(sweep(study, base)), "1/4 sweep")
    measured = measure(study, trials, runs)
    for k in range(study.rounds):
        title = f"2/4 rates at an end, targets missed ({k + 1} of {study.rounds})"
        more = trainer.contend(merged(next_trials(trials, measured)), title)
        trials = merged([*trials, *more])
        measured = measure(study, trials, runs)
    again = trainer.contend(merged(repeats(study, trials, measured)), "3/4 other seeds")
    trials = merged([*trials, *again])
    return trials, measure(study, trials, runs)


def compared(
    study: Study, trainer: Trainer, trials: list[Trial], measured: pd.DataFrame
) -> dict[str, list[Trial]]:
    """The finished trials of the other schedules, by name."""
    if study.schedules is None:
        return {}
    planned = comparison_trials(study, study.schedules, trials, measured)
    flat = [trial for members in planned.values() for trial in members]
    done = {trial.run.id for trial in trainer.contend(merged(flat), "4/4 schedules")}
    finished = {name: [t for t in members if t.run.id in done] for name, members in planned.items()}
    return {name: members for name, members in finished.items() if members}


if __name__ == "__main__":
    run_experiment(Study, experiment)
