"""Trains a run straight and with stops; prints the hash of each end as JSON.

`test_default_flags.py` runs it in a process of its own, with XLA's default flags, as users have
them. Other tests compile with few optimisations.
"""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from bss.models.transformer import TransformerConfig
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.batches import SYNTHETIC
from bss.training.checkpoint import open_checkpoints, restore_path
from bss.training.execution import Execution
from bss.training.loop import Interrupted, train
from bss.training.optimizers import AdamW
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig
from bss.training.run_directory import read_curve, run_path
from bss.training.sharding import abstract
from bss.training.step import init_state

SEQ_LEN = 16
RUN = RunConfig(
    TransformerConfig(50, num_layers=1, d_model=16, num_heads=2, d_ff=32),
    DataConfig(content=SYNTHETIC, seq_len=SEQ_LEN),
    AdamW(lr=1e-2, weight_decay=0.01),
    ScheduleConfig(4096, BatchSchedule((0, 1024, 2048), (2, 4, 8)), warmup=512),
    EvaluationConfig(tokens=20 * SEQ_LEN, per_efold=4, first=500),
    averages=("10%",),
)
NEVER = 1_000
"""A number of questions that no run of this size asks."""


class StopAfter:
    """A stop that comes when it was asked for so many times, once or twice a dispatch."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def train_in_parts(devices: int, *parts: tuple[int, int]) -> str:
    """Train for each part with its steps per dispatch up to its stop; return the end's hash."""
    with tempfile.TemporaryDirectory() as runs:
        stops = 0
        for steps, asked in parts:
            execution = Execution(runs, buckets=(2, 4), devices=devices, steps_per_dispatch=steps)
            try:
                train(RUN, execution, stop=StopAfter(asked))  # type: ignore[arg-type]
            except Interrupted:
                stops += 1
        assert stops == len(parts) - 1
        return hash_end(run_path(runs, RUN))


def hash_end(directory: Path) -> str:
    """Return the hash of the final state and of all rows but their seconds."""
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shapes = abstract(jax.eval_shape(lambda: init_state(RUN)), device)
    with open_checkpoints(directory) as checkpoints:
        state, _ = restore_path(checkpoints.path(checkpoints.tokens()[0]), shapes)
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        total.update(np.asarray(leaf).tobytes())
    for row in read_curve(directory):
        total.update(json.dumps(row | {"seconds": 0}).encode())
    return total.hexdigest()


def main(layouts: dict[str, Sequence[tuple[int, int]]]) -> None:
    """Print the hashes by devices and parts."""
    jax.config.update("jax_num_cpu_devices", 2)
    warnings.simplefilter("error")
    ends = {
        str(devices): {name: train_in_parts(devices, *parts) for name, parts in layouts.items()}
        for devices in (1, 2)
    }
    print(json.dumps(ends))


if __name__ == "__main__":
    main(
        {
            "straight": [(0, NEVER)],
            "step by step": [(1, NEVER)],
            "stopped": [(0, 1), (0, 1), (0, NEVER)],
            "other steps": [(3, 3), (1, 9), (0, 1), (7, NEVER)],
        }
    )
