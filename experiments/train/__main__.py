"""One run as a user trains it: a model under WSD and a batch schedule, and its curve.

    python -m experiments.train --config=configs/train.py:nano \
        --config.schedule.batch="0:8 40K:16" --config.schedule.tokens=100000

Interrupt it when you like: the run is saved, and the same command continues it.
"""

from bss.plots.runs import run_figure
from bss.sweeps.table import run_table
from experiments.main import run_experiment
from experiments.results import Results
from experiments.study import EngineConfig, say
from experiments.train.study import Study
from experiments.trainer import Trainer


def experiment(study: Study) -> None:
    """Trains the run and writes its curve."""
    title = f"{study.model} on {study.text.corpus}, batch {study.schedule.batch}"
    results = Results(study, title)
    run, execution = study.run()
    with Trainer(EngineConfig(workers=1, pin=False), execution) as trainer:
        trained = trainer.train([run], title)
    curve = run_table(trainer.runs, trained)
    files = {"runs.parquet": curve, "curve.png": run_figure(curve)}
    results.write(files, trainer, run=run.id)
    last = curve.iloc[-1]
    say(
        f"held-out loss {last['eval_loss']:.4f} after {last['tokens']:,} tokens, "
        f"{last['step']:,} steps"
    )
    print(f"curve: {results.directory / 'curve.png'}")


if __name__ == "__main__":
    run_experiment(Study, experiment)
