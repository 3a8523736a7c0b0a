"""One run as a user trains it: a model under WSD and a batch schedule, and its curve.

    python -m experiments.train --config=configs/train.py:nano \
        --config.schedule.batch="0:8 40K:16" --config.schedule.tokens=100000

Interrupt it when you like: the run is saved, and the same command continues it. With
`--coordinator`, `--processes` and `--process` several processes train it together
(docs/machines.md).
"""

from dataclasses import dataclass, fields

from bss.models.sizes import name_of
from bss.plots.curves import varied_curves
from bss.sweeps.engines import engine_of
from bss.sweeps.results import Results
from bss.sweeps.setup import EngineConfig, RunSetup, Setup
from bss.sweeps.sweep import tables, trained
from bss.training.distributed import is_primary, log_primary, on_all_hosts
from experiments.main import run_experiment


@dataclass(frozen=True)
class Study(RunSetup):
    """Settings of one run, without nested groups, for the command line.

    Attributes:
        seed: Seed of the initialisation and of the data order.
        buckets: ladder of bucket sizes in sequences; empty lets the plan choose.
        checkpoint_seconds: Maximum seconds between checkpoints.
        fsdp: Number of devices that split the weights; see `Execution`.
        engine: Engine that trains the run; see `bss.sweeps.engines`.
        runs: directory of run directories.
        results: directory of the curve and its figure.
    """

    seed: int = 0
    buckets: tuple[int, ...] = ()
    checkpoint_seconds: float = 60.0
    fsdp: int = 1
    engine: str = "local"
    runs: str = "runs"
    results: str = "results"


def experiment(study: Study) -> None:
    """Trains the run and writes its curve."""
    title = f"{name_of(study.model)} on {study.text.corpus}, batch {study.schedule.batch}"
    results = on_all_hosts(lambda: Results(study, title))
    engine = EngineConfig(
        runs=study.runs,
        workers=1,
        pin=False,
        buckets=study.buckets,
        checkpoint_seconds=study.checkpoint_seconds,
        fsdp=study.fsdp,
    )
    setup = Setup(**{f.name: getattr(study, f.name) for f in fields(RunSetup)}, engine=engine)
    seed = [{"seed": study.seed, "data.seed": study.seed}]
    runs, trainer = trained(setup, [seed], engine_of(study.engine), title)
    if not is_primary():
        return
    curve = tables(runs, trainer).runs
    files = {"runs.parquet": curve, "curve.png": varied_curves(curve)}
    results.write(files, trainer, run=runs[0].id)
    last = curve.iloc[-1]
    log_primary(
        f"held-out loss {last['eval_loss']:.4f} after {last['tokens']:,} tokens, "
        f"{last['step']:,} steps"
    )
    print(f"curve: {results.directory / 'curve.png'}")


if __name__ == "__main__":
    run_experiment(Study, experiment, joint=True)
