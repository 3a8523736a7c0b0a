"""The critical batch size: measured, fitted, and whether it follows the data or the model.

Zhang et al. (arXiv 2410.21676) grow model and data together, the data at one model, and the model
at one budget of data, and read the largest batch within 20% of linear scaling off each. Here with
intervals, and with the other things it may hang on: the definition, width against depth, the
context, the learning-rate schedule; and beside it the gradient noise scale of the same runs.

    python -m experiments.critical_batch --config=configs/critical_batch.py:cpu
    python -m experiments.critical_batch --config=configs/critical_batch.py:paper \
        --config.dry_run=True
"""

import time
from pathlib import Path

import pandas as pd

from bss.plots.critical import critical_figure
from bss.sweeps.engine import LocalEngine
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.values import to_dict
from experiments.critical_batch.measure import (
    fit_design,
    measure,
    next_trials,
    repeats,
)
from experiments.critical_batch.schedules import comparison_table, comparison_trials
from experiments.critical_batch.study import Study
from experiments.critical_batch.tables import tables
from experiments.critical_batch.trials import Trial, merged, say_price, sweep
from experiments.study import (
    base_run,
    check_results,
    make_engine,
    print_price,
    provenance,
    run_experiment,
    say,
    train_all,
    write_results,
)


def experiment(study: Study) -> None:
    """Runs the study and writes its tables and figures; or prints its price."""
    if study.dry_run:
        say_price(study)
        return
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    base, execution = base_run(study.setup)
    with make_engine(study.setup) as engine:
        trials, measured = swept(study, engine, base, execution)
        others = compared(study, engine, execution, trials, measured)
    say("measuring steps to the targets, fitting the laws")
    fits = {design.name: fit_design(study, design, measured) for design in study.designs}
    fits = {name: fit for name, fit in fits.items() if fit is not None}
    everything = [trial.run for trial in [*trials, *(t for ts in others.values() for t in ts)]]
    record = {
        "title": study.title,
        **provenance(to_dict(study), started, everything, execution.runs),
    }
    files = {"experiment.json": record, **tables(study, trials, measured, fits)}
    files |= {f"critical_{name}.png": critical_figure(fit) for name, fit in fits.items()}
    if study.schedules is not None:
        files["schedules.csv"] = comparison_table(
            study, study.schedules, trials, measured, others, Path(execution.runs)
        )
    write_results(Path(study.results), files)
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


def swept(
    study: Study, engine: LocalEngine, base: RunConfig, execution: Execution
) -> tuple[list[Trial], pd.DataFrame]:
    """Every trial that finished, and the points they make: the sweep, its mending, the seeds."""
    runs = Path(execution.runs)
    trials = train(engine, sweep(study, base), execution, "1/4 sweep")
    measured = measure(study, trials, runs)
    for k in range(study.rounds):
        title = f"2/4 rates at an end, targets missed ({k + 1} of {study.rounds})"
        more = train(engine, next_trials(trials, measured), execution, title)
        trials = merged([*trials, *more])
        measured = measure(study, trials, runs)
    again = train(engine, repeats(study, trials, measured), execution, "3/4 other seeds")
    trials = merged([*trials, *again])
    return trials, measure(study, trials, runs)


def compared(
    study: Study,
    engine: LocalEngine,
    execution: Execution,
    trials: list[Trial],
    measured: pd.DataFrame,
) -> dict[str, list[Trial]]:
    """The finished trials of the other schedules, by name."""
    if study.schedules is None:
        return {}
    asked = comparison_trials(study, study.schedules, trials, measured)
    flat = [trial for members in asked.values() for trial in members]
    done = {trial.run.id for trial in train(engine, flat, execution, "4/4 schedules")}
    kept = {name: [t for t in members if t.run.id in done] for name, members in asked.items()}
    return {name: members for name, members in kept.items() if members}


def train(
    engine: LocalEngine, trials: list[Trial], execution: Execution, title: str
) -> list[Trial]:
    """Prices and trains trials, equal ones once; returns those that finished."""
    trials = merged(trials)
    if not trials:
        return []
    print_price(title, [trial.run for trial in trials])
    done = {run.id for run in train_all(engine, [t.run for t in trials], execution, title)}
    return [trial for trial in trials if trial.run.id in done]


if __name__ == "__main__":
    run_experiment(Study, experiment)
