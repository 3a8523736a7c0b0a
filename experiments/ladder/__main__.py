"""A ladder of sizes: does what small rungs say of batch and rate hold on the rung above?

Constant batches at the rates that pilots chose, under a parametrization that keeps them over
widths; each run at constant rate, and decayed to zero at half of its tokens and at all of them.

    python -m experiments.ladder --config=configs/ladder.py:es_99k --config.dry_run=True
    python -m experiments.ladder --config=configs/ladder.py:es_99k

What was expected is in results/predictions/ladder.json, committed before the first rung.
"""

from bss.sweeps.price import price
from bss.sweeps.results import Results
from bss.sweeps.setup import planned_run
from bss.sweeps.table import finals, run_table
from experiments.ladder.study import Study
from experiments.main import run_experiment
from experiments.study import say


def experiment(study: Study) -> None:
    """Runs a part, a seed after the other, and writes the tables of those that have ended."""
    if study.dry_run:
        say_price(study)
        return
    results = Results(study)
    with study.training(study.forks, study.registration) as (base, trainer):
        for seed in study.seeds:
            runs = [run for rung in study.rungs for run in study.runs(base, rung, seed)]
            trainer.train(runs, f"seed {seed}")
            ended = [*trainer.finished.values()]
            stable = [run for run in ended if not run.schedule.decay]
            tables = {"finals.csv": finals(ended, trainer.statuses)}
            results.write(tables | {"curves.parquet": run_table(trainer.runs, stable)}, trainer)


def say_price(study: Study) -> None:
    """Says what each rung costs: runs, tokens, FLOPs and hours; no data are read."""
    base, costs = planned_run(study.setup), {}
    for rung in study.rungs:
        runs = [run for seed in study.seeds for run in study.runs(base, rung, seed)]
        costs[rung.name] = price(runs)
        say(f"{rung.name}: {costs[rung.name]}")
    study.print_hours(costs)


if __name__ == "__main__":
    run_experiment(Study, experiment)
