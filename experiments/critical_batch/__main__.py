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
from typing import Any

import pandas as pd

from bss.laws.critical.values import CriticalFit
from bss.plots.critical import critical_figure
from bss.sweeps.engine import LocalEngine
from bss.sweeps.price import hours, price
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.values import to_dict
from experiments.critical_batch.measure import (
    curves,
    fit_design,
    measure,
    minima,
    next_trials,
    repeats,
    with_overhead,
)
from experiments.critical_batch.schedules import comparison_table, comparison_trials
from experiments.critical_batch.study import Study, Trial, likely_repeats, merged, sweep
from experiments.critical_batch.tables import (
    critical_table,
    definitions_table,
    laws_table,
    noise_table,
)
from experiments.study import (
    base_run,
    check_results,
    make_engine,
    planned_run,
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
    if study.schedules is not None:
        files["schedules.csv"] = comparison_table(
            study, study.schedules, trials, measured, others, Path(execution.runs)
        )
    write_results(Path(study.results), files)
    for name, fit in fits.items():
        critical_figure(fit).savefig(Path(study.results) / f"critical_{name}.png", dpi=150)
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


def tables(
    study: Study, trials: list[Trial], measured: pd.DataFrame, fits: dict[str, CriticalFit]
) -> dict[str, Any]:
    """Every table but the comparison of schedules, by file name."""
    curve = curves(trials, Path(study.setup.engine.runs))
    files = {
        "runs.parquet": curve,
        "points.csv": measured,
        "steps.csv": with_overhead(minima(measured), study.reference),
        "fits.json": {name: fit.to_dict() for name, fit in fits.items()},
        "critical.csv": critical_table(fits),
        "laws.csv": laws_table(fits),
        "definitions.csv": definitions_table(fits),
    }
    if study.noise_half_life:
        files["noise_scale.csv"] = noise_table(curve, measured, fits)
    return files


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


def price_table(study: Study) -> pd.DataFrame:
    """What a study costs by cell, in FLOPs and hours of its device; no data are read.

    FLOPs are those of matrix products (`bss.models.family`), evaluations included. `flops` are of
    the first sweep, `repeats` of the other seeds at B_ref and around the guessed bend; runs that
    are lengthened or added in the rounds, and the other schedules, come on top.
    """
    base = planned_run(study.setup)
    first, again = sweep(study, base), likely_repeats(study, base)
    rows = []
    for model, seq_len in study.cells():
        ours = [trial for trial in first if trial.cell == (model, seq_len)]
        repeated = merged([trial for trial in again if trial.cell == (model, seq_len)])
        runs, budgets = [trial.run for trial in ours], {d for t in ours for d in t.budgets}
        batches = [run.schedule.batch.constant_batch for run in runs]
        cost, repeats = price(runs), price([trial.run for trial in repeated]).flops
        rows.append(
            {
                "model": model,
                "params": runs[0].model.counts().non_embedding,
                "seq_len": seq_len,
                "budgets": " ".join(f"{budget / 1e6:.4g}M" for budget in sorted(budgets)),
                "batches": f"{min(batches)}–{max(batches)}",
                "runs": len(runs),
                "trained": float(cost.trained),
                "flops": float(cost.flops),
                "repeats": float(repeats),
                "hours": hours(cost.flops + repeats, study.peak_flops, study.mfu),
            }
        )
    table = pd.DataFrame(rows)
    sums = {c: table[c].sum() for c in ("runs", "trained", "flops", "repeats", "hours")}
    return pd.concat([table, pd.DataFrame([{"model": "all", **sums}])], ignore_index=True)


def say_price(study: Study) -> None:
    """Prints the price with what it assumes."""
    print(price_table(study).to_string(index=False, na_rep="", float_format="{:.4g}".format))
    say(
        f"hours: of one device at {study.mfu:.0%} of {study.peak_flops:.3g} FLOP/s (assumed), for "
        f"the sweep and {len(study.seeds) - 1} more seeds at B_ref and around each bend; "
        f"{study.rounds} rounds of mending the sweep and other schedules come on top"
    )


if __name__ == "__main__":
    run_experiment(Study, experiment)
