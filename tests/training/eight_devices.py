"""Trains a few steps on devices of several numbers, whole or split; prints what they gave as JSON.

`test_devices.py` runs it in a process of its own: a process has one number of devices.
"""

import contextlib
import json
import math
import re
import tempfile
import warnings
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bss.models.transformer import TransformerConfig
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.batches import SYNTHETIC
from bss.training.execution import Execution
from bss.training.loop import Interrupted, train
from bss.training.microbatching import microbatch_grad, pack
from bss.training.optimizers import StepSettings
from bss.training.programs import compilation_counter, step_programs
from bss.training.run_config import DataConfig, EvaluationConfig, NoiseScaleConfig, RunConfig
from bss.training.run_directory import read_curve, run_path
from bss.training.sharding import make_mesh, shardings_of
from bss.training.step import State, init_state, state_shapes

STEPS, BUCKETS, BUCKET, SEQ_LEN, VOCAB = 20, 2, 8, 16, 50
SETTINGS = StepSettings(*map(np.float32, (1e-3, 0.1, 0.05, 0.01)), np.zeros(0, np.float32))  # type: ignore[call-arg]


def model(dtype: str) -> TransformerConfig:
    """Layers are a loop of their own inside that of the buckets."""
    sizes = VOCAB, 2, 32, 2, 64
    return TransformerConfig(*sizes, dtype=dtype, scan_layers=True, remat=True)  # type: ignore[arg-type]


def trained(dtype: str, layouts: tuple[str, ...]) -> dict:
    """By layout, "DEVICES" or "DATAxFSDP": what `laid_out` tells."""
    run = RunConfig(model(dtype), DataConfig(seq_len=SEQ_LEN), noise_scale=NoiseScaleConfig(1000))
    fresh = jax.tree.map(np.asarray, init_state(run))
    return {layout: laid_out(run, fresh, layout) for layout in layouts}


def laid_out(run: RunConfig, fresh: State, layout: str) -> dict:
    """Losses, gradient norms and squares of the steps from a fresh state; the collectives."""
    data, _, fsdp = layout.partition("x")
    mesh = make_mesh(int(data) * int(fsdp or 1), int(fsdp or 1))
    shapes = state_shapes(run, mesh)
    state = jax.device_put(fresh, shardings_of(shapes))
    program = step_programs(run, shapes, {BUCKET: BUCKETS}, mesh)[BUCKET].result()
    draw, metrics = np.random.default_rng(0), []
    with compilation_counter() as compilations:
        for index in range(STEPS):
            sequences = draw.integers(0, VOCAB, (BUCKETS, BUCKET, SEQ_LEN + 1)).astype(np.int32)
            buckets = np.int32(1 if index < STEPS // 2 else BUCKETS)
            state, told = program(state, sequences, buckets, SETTINGS)
            metrics.append([float(told.loss), float(told.grad_norm), float(told.squares)])
    return {
        "metrics": metrics,
        "compilations": compilations(),
        "collectives": collectives(program.as_text()),
    }


def collectives(text: str) -> list[dict]:
    """Kind, float32 bytes and place of each collective in the text of a compiled program."""
    found, entry = [], False
    for line in text.splitlines():
        if line.endswith("{"):
            entry = line.startswith("ENTRY")
        if match := re.search(r" = (.*?) (all-reduce|all-gather|reduce-scatter)\(", line):
            shapes = re.findall(r"f32\[([\d,]*)\]", match[1])
            size = sum(4 * math.prod(map(int, filter(None, x.split(",")))) for x in shapes)
            found.append({"kind": match[2], "in_loop": not entry, "bytes": size})
    return found


def wrapped(devices: int, split_weights: bool) -> tuple[float, list[float]]:
    """Loss and gradient by `microbatch_grad` of a loss that is not ours, on some devices."""
    mesh = jax.make_mesh((devices,), ("data",), axis_types=(AxisType.Auto,))
    own = PartitionSpec("data" if split_weights else None)
    weights = jax.device_put(np.arange(16, dtype=np.float32) / 16, NamedSharding(mesh, own))
    rows = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    batch, count = pack(rows, 8, 32)
    batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))
    grad_fn = jax.jit(microbatch_grad(lambda weights, x: ((x @ weights) ** 2).mean(), 8))
    loss, gradients, _ = grad_fn(weights, batch, count)
    return float(loss), np.asarray(gradients).tolist()


class AfterFive:
    """A stop that comes when it was asked for five times, once a step."""

    def __init__(self):
        self.left = 5

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def resumed(*layouts: tuple[int, int]) -> list[dict]:
    """The curve of a run that goes on after every five steps, as devices and fsdp say."""
    tokens, change = SEQ_LEN * 8 * 30, SEQ_LEN * 8 * 10
    run = RunConfig(
        model("float32"),
        DataConfig(content=SYNTHETIC, seq_len=SEQ_LEN),
        schedule=ScheduleConfig(tokens, BatchSchedule((0, change), (8, 16)), warmup=change),
        evaluation=EvaluationConfig(tokens=SEQ_LEN * 20, first=SEQ_LEN * 8, per_efold=20),
        averages=("8%",),
    )
    with tempfile.TemporaryDirectory() as runs, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another execution
        for index, (devices, fsdp) in enumerate(layouts, 1):
            execution = Execution(runs, buckets=(8,), devices=devices, fsdp=fsdp)
            stop: Any = AfterFive() if index < len(layouts) else None
            with contextlib.suppress(Interrupted):
                train(run, execution, stop=stop)
        return read_curve(run_path(runs, run))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    asked = {"float32": ("1", "2", "4", "8", "2x4", "1x8"), "bfloat16": ("1", "8", "2x4")}
    told: dict[str, Any] = {dtype: trained(dtype, layouts) for dtype, layouts in asked.items()}
    told["wrapped"] = [wrapped(*of) for of in ((1, False), (8, False), (8, True))]
    told["straight"], told["resumed"] = resumed((1, 1)), resumed((1, 1), (8, 1), (8, 4), (1, 1))
    print(json.dumps(told))
