"""A batch that grows, through the project's own loop on the synthetic language."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bss.models.sizes import named
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.config import DataConfig, EvaluationConfig, RunConfig
from bss.training.directory import read_curve
from bss.training.execution import Execution
from bss.training.loop import train
from bss.training.source import SYNTHETIC

STEPS = 20


def ramp(
    *, model: str, bucket: tuple[int, int], seq_len: int, attention: str
) -> Iterator[dict[str, Any]]:
    """A run of two stages, each of a bucket of its own: what the change between them costs.

    Lost are the seconds of the stretch behind the change, up to its first evaluation, beyond what
    as many tokens take later in that stage. Sequences are made on the device too, in the seconds.
    """
    small, large = bucket
    change = STEPS * small * seq_len
    total = change + STEPS * large * seq_len
    run = RunConfig(
        named(model),
        DataConfig(content=SYNTHETIC, seq_len=seq_len),
        schedule=ScheduleConfig(total, BatchSchedule((0, change), (small, large))),
        evaluation=EvaluationConfig(8 * seq_len, per_efold=10, first=change),
    )
    with tempfile.TemporaryDirectory() as folder:
        execution = Execution(
            folder,
            buckets=(small, large),
            devices=1,
            checkpoint_seconds=1e9,
            attention=attention,
        )
        start = time.perf_counter()
        status = train(run, execution)
        wall, rows = time.perf_counter() - start, read_curve(Path(folder) / run.id)
    rows = [row for row in rows if row["tokens"] >= change]
    spans = [(b["tokens"] - a["tokens"], b["seconds"] - a["seconds"]) for a, b in pairwise(rows)]
    steady = statistics.median(seconds / count for count, seconds in spans[1:])
    yield {
        "status": status.status,
        "steps": status.step,
        "programs": status.programs,
        "recompilations": status.recompilations,
        "seconds_lost": spans[0][1] - spans[0][0] * steady,
        "seconds_per_step": steady * large * seq_len,
        "tokens_per_second": 1 / steady,
        "training_seconds": status.seconds,
        "wall_seconds": wall,
    }
