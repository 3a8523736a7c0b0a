"""What decides the best batch: the second moment, the rate or the ending?

Adam's second moment is kept per step (beta2 .95, as most recipes have it) or per token (a half-life
whatever the batch, Marek et al., arXiv 2507.07101). Under the first its average spans fewer tokens
at a small batch, under the second fewer steps at a large one. Each part of the study trains batches
under such rules, at rates tuned for each batch on seeds that are not judged; every run ends at
constant rate, with averaged weights, and decayed.

    python -m experiments.second_moment --config=configs/second_moment.py:rules

What was expected is in results/predictions/second_moment.json, committed before the first run.
"""

from bss.sweeps.contenders import contender_table
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from experiments.main import run_experiment
from experiments.second_moment.runs import labelled, train
from experiments.second_moment.study import Study


def experiment(study: Study) -> None:
    """Runs a part and writes its tables."""
    results = Results(study)
    with study.training(study.forks) as (base, trainer):
        trained = train(study, base, trainer)
    stable = [contender.run for contender in trained if contender.ending == "constant"]
    results.write(
        {
            "runs.parquet": labelled(study, run_table(trainer.runs, stable), trained),
            "contenders.csv": labelled(study, contender_table(trained, trainer.statuses), trained),
        },
        trainer,
    )


if __name__ == "__main__":
    run_experiment(Study, experiment)
