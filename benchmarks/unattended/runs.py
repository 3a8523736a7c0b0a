"""The short runs that are disturbed; killed ones run in a separate process.

python -m benchmarks.unattended.runs FOLDER SEEDS CHECKPOINT_SECONDS [Ray]
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bss.models.transformer import TransformerConfig
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.sweeps.cluster import RayEngine
from bss.sweeps.setup import EngineConfig
from bss.training.checkpoint import open_checkpoints, restore_path
from bss.training.execution import Execution
from bss.training.loop import train, train_vmapped
from bss.training.optimizers import AdamW
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig
from bss.training.run_directory import read_curve, read_status
from bss.training.sharding import make_mesh
from bss.training.step import state_shapes

STEPS = 48
_SEQ_LEN = 16


def a_run(seed: int = 0) -> RunConfig:
    """Return a pico run of 48 steps through a batch change, a row about every third step."""
    half = STEPS // 2 * 2 * _SEQ_LEN
    return RunConfig(
        TransformerConfig(64, num_layers=1, d_model=32, num_heads=2, d_ff=128),
        DataConfig(corpus="synthetic", content="synthetic", seq_len=_SEQ_LEN, seed=seed),
        AdamW(lr=1e-2),
        ScheduleConfig(3 * half, BatchSchedule((0, half), (2, 4)), warmup=half // 4),
        EvaluationConfig(tokens=20 * _SEQ_LEN, per_efold=10, first=2 * _SEQ_LEN),
        seed=seed,
    )


def an_execution(folder: Path, checkpoint_seconds: float = 0) -> Execution:
    """One device, saves at every step unless told otherwise, one fork point."""
    return Execution(
        runs=str(folder / "runs"),
        buckets=(2,),
        devices=1,
        checkpoint_seconds=checkpoint_seconds,
        evaluation_bucket=8,
        forks=(16 * 2 * _SEQ_LEN,),
        compilation_cache=str(folder.parent / "compiled"),
    )


def directory_of(run: RunConfig, folder: Path) -> Path:
    """Return the directory of a run below a folder."""
    return folder / "runs" / run.id


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Return a curve without its times."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_curve(directory)]


def ended_as(run: RunConfig, folder: Path) -> tuple[Any, ...]:
    """Return the compared values of a run: status, curve, final losses and the complete state."""
    directory = directory_of(run, folder)
    status = read_status(directory)
    shapes = state_shapes(run, make_mesh(1))
    with open_checkpoints(directory) as checkpoints:
        state, record = restore_path(checkpoints.path(checkpoints.tokens()[0]), shapes)
    arrays = [np.asarray(x).tobytes() for x in jax.tree.leaves(state)]
    return status.status, rows_of(directory), dict(status.losses), record["tokens"], arrays


def main() -> None:
    """Train the runs of some seeds: several in one program, or by workers on a Ray cluster."""
    folder = Path(sys.argv[1])
    seeds = sys.argv[2].split(",")
    runs = [a_run(int(seed)) for seed in seeds]
    execution = an_execution(folder, float(sys.argv[3]))
    jax.config.update("jax_compilation_cache_dir", execution.compilation_cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    if sys.argv[4:] == ["Ray"]:
        with RayEngine(EngineConfig(retries=99)) as engine:
            engine.train(runs, execution)
    elif len(runs) > 1:
        train_vmapped(runs, execution)
    else:
        train(runs[0], execution)


if __name__ == "__main__":
    main()
