"""CPU time of `execution.log_every` per step.

    python -m benchmarks.log_every

Dispatches of 64 steps at d 64 are recorded in turns without a log, with every tenth step and with
every step. No step is computed, so the numbers do not depend on the load of the machine.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bss.models.sizes import named
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.batches import MAX_STEPS, StepBatch
from bss.training.execution import Execution
from bss.training.loggers import Loggers
from bss.training.recorder import RunRecorder, record_metrics
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import make_mesh
from bss.training.step import Metrics

BATCH = 8
SEQ_LEN = 64
DISPATCHES = 150
SECONDS = 0.4
"""Seconds of a dispatch, as the log is told."""


class _Folder:
    """The part of a run directory that a recorder of steps uses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writable = True


def cost(dispatches: int = DISPATCHES) -> dict[int, float]:
    """Return the median CPU microseconds per step, by `log_every`."""
    tokens = BATCH * SEQ_LEN * MAX_STEPS * dispatches
    schedule = ScheduleConfig(tokens, BatchSchedule((0,), (BATCH,)), warmup=tokens // 10)
    run = RunConfig(named("nano"), DataConfig(seq_len=SEQ_LEN), schedule=schedule)
    metrics = Metrics(*[np.ones(MAX_STEPS, np.float32)] * 3)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        recorders = {every: _recorder(run, every, Path(folder)) for every in (0, 10, 1)}
        took: dict[int, list[float]] = {every: [] for every in recorders}
        for index in range(dispatches):
            steps = range(MAX_STEPS * index + 1, MAX_STEPS * (index + 1) + 1)
            ends = tuple(BATCH * SEQ_LEN * step for step in steps)
            batch = StepBatch(ends, BATCH, 1, BATCH, ())
            for every, recorder in recorders.items():
                start = time.process_time()
                clock = time.perf_counter() - SECONDS * (index + 1)
                record_metrics(batch, metrics, {0: recorder}, 1, 1, clock)
                took[every].append((time.process_time() - start) / MAX_STEPS * 1e6)
    return {every: statistics.median(each) for every, each in took.items()}


def _recorder(run: RunConfig, every: int, folder: Path) -> RunRecorder:
    own = folder / str(every)
    own.mkdir()
    directory: Any = _Folder(own)
    execution = Execution(log_every=every)
    recorder = RunRecorder(run, run.plan(), execution, directory, directory, Loggers(()))
    recorder.open_step_log(make_mesh())
    return recorder


def main() -> int:
    """Print the medians."""
    found = cost()
    for every, microseconds in found.items():
        more = microseconds - found[0]
        print(f"log_every {every}: {microseconds:.1f} us per step, {more:.1f} more than without")
    return 0


if __name__ == "__main__":
    sys.exit(main())
