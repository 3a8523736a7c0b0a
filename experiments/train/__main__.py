"""One run as a user trains it: a model under WSD and a batch schedule, and its curve.

    python -m experiments.train --config=configs/train.py:nano \
        --config.schedule.batch="0:8 40K:16" --config.schedule.tokens=100000

Interrupt it when you like: the run is saved, and the same command continues it.
"""

import time
from pathlib import Path

from bss.plots.runs import run_figure
from bss.sweeps.engine import LocalEngine
from bss.sweeps.table import run_table
from bss.values import to_dict
from experiments.study import (
    check_results,
    print_price,
    provenance,
    run_experiment,
    say,
    train_all,
    write_results,
)
from experiments.train.study import Study


def experiment(study: Study) -> None:
    """Trains the run and writes its curve."""
    started, results = time.monotonic(), Path(study.results)
    check_results(results, to_dict(study))
    run, execution = study.run()
    title = f"{study.model} on {study.text.corpus}, batch {run.schedule.batch}"
    print_price(title, [run])
    with LocalEngine(1, pin=False) as engine:
        trained = train_all(engine, [run], execution, title)
    curve = run_table(Path(execution.runs), trained)
    record = provenance(to_dict(study), started, trained, execution.runs)
    write_results(
        results,
        {
            "experiment.json": {"title": title, "run": run.id, **record},
            "runs.parquet": curve,
            "curve.png": run_figure(curve),
        },
    )
    last = curve.iloc[-1]
    say(
        f"held-out loss {last['eval_loss']:.4f} after {last['tokens']:,} tokens, "
        f"{last['step']:,} steps"
    )
    print(f"curve: {results / 'curve.png'}")


if __name__ == "__main__":
    run_experiment(Study, experiment)
