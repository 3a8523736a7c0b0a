"""The project's own loops on the synthetic language: a growing batch, small runs side by side."""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ramp import dispatches
from bss.models.sizes import named
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.batches import SYNTHETIC
from bss.training.execution import Execution
from bss.training.loop import train, train_vmapped
from bss.training.optimizers import AdamW
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig
from bss.training.run_directory import read_curve

STEPS = 20
FLEET_STEPS = 512


def ramp(
    *, model: str, bucket: tuple[int, int], seq_len: int, attention: str
) -> Iterator[dict[str, Any]]:
    """Yield a run of two stages with different micro-batch sizes, and the cost of the change.

    The cost is the time of the first dispatch after the change minus the later time of equal
    tokens. Sequences are made on the device too, in the seconds.
    """
    small, large = bucket
    change = STEPS * small * seq_len
    total = change + STEPS * large * seq_len
    schedule = ScheduleConfig(total, BatchSchedule((0, change), (small, large)))
    run = _run(model, seq_len, schedule, first=change)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found, status = dispatches(run, _execution(folder, bucket, attention))
        wall = time.perf_counter() - start
    changed = [d for d in found if d.start >= change]
    first = changed[0]
    later = changed[1:]
    steady = statistics.median(d.seconds / (d.end - d.start) for d in later or [first])
    yield {
        "status": status.status,
        "steps": status.step,
        "programs": status.programs,
        "recompilations": status.recompilations,
        "seconds_lost": first.seconds - (first.end - first.start) * steady,
        "seconds_per_step": steady * large * seq_len,
        "tokens_per_second": 1 / steady,
        "training_seconds": status.seconds,
        "wall_seconds": wall,
    }


def fleet(
    *, model: str, bucket: int, seq_len: int, attention: str, runs: int
) -> Iterator[dict[str, Any]]:
    """Yield vmapped runs of one batch size that differ in LR; one is trained by the loop.

    Steps per second are those of all runs, between their first and last evaluations; the seconds
    of each are its share of the fleet's.
    """
    step = bucket * seq_len
    schedule = ScheduleConfig(FLEET_STEPS * step, BatchSchedule.constant(bucket))
    first = _run(model, seq_len, schedule, first=FLEET_STEPS // 8 * step)
    rates = (1e-3 * (1 + index / runs) for index in range(runs))
    side_by_side = [dataclasses.replace(first, optimizer=AdamW(lr=rate)) for rate in rates]
    with tempfile.TemporaryDirectory() as folder:
        execution = _execution(folder, [bucket], attention)
        if runs == 1:
            train(side_by_side[0], execution)
        else:
            train_vmapped(side_by_side, execution)
        rows = read_curve(Path(folder) / side_by_side[0].id)
    steps = rows[-1]["step"] - rows[0]["step"]
    seconds = rows[-1]["seconds"] - rows[0]["seconds"]
    yield {"steps": steps, "steps_per_second": steps / seconds}


def _run(model: str, seq_len: int, schedule: ScheduleConfig, first: int) -> RunConfig:
    """On the synthetic language, evaluated ten times an e-fold from `first` tokens on."""
    data = DataConfig(content=SYNTHETIC, seq_len=seq_len)
    evaluation = EvaluationConfig(8 * seq_len, per_efold=10, first=first)
    return RunConfig(named(model), data, schedule=schedule, evaluation=evaluation)


def _execution(folder: str, buckets: Sequence[int], attention: str) -> Execution:
    return Execution(
        folder, buckets=tuple(buckets), devices=1, checkpoint_seconds=1e9, attention=attention
    )
