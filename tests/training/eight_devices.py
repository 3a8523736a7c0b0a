"""Twenty steps on up to 8 forced CPU devices, and the compiled programs, as one JSON object.

    python -m tests.training.eight_devices

`test_devices.py` runs it in a process of its own: a process has one number of devices.
"""

import json

import jax
import numpy as np

from bss.machines.counts import count
from bss.machines.hlo import Program
from bss.models.transformer.config import TransformerConfig
from bss.training.buckets import Programs, compilations
from bss.training.checkpoint import abstract
from bss.training.config import DataConfig, NoiseScaleConfig, RunConfig
from bss.training.mesh import make_mesh, replicated
from bss.training.optimizers.base import StepSettings
from bss.training.step import State, init_state, make_step

STEPS, BUCKETS, BUCKET, SEQ_LEN, VOCAB = 20, 2, 8, 16, 50
SETTINGS = StepSettings(*map(np.float32, (1e-3, 0.1, 0.05, 0.01)), np.zeros(0, np.float32))  # type: ignore[call-arg]


def trained(dtype: str, numbers: tuple[int, ...]) -> dict:
    """By number of devices: metrics of the steps, and what the program does between devices."""
    # Layers are a loop of their own inside that of the buckets.
    model = TransformerConfig(VOCAB, 2, 32, 2, 64, dtype=dtype, scan_layers=True)  # type: ignore[arg-type]
    run = RunConfig(model, DataConfig(seq_len=SEQ_LEN), noise_scale=NoiseScaleConfig(1000))
    fresh = jax.tree.map(np.asarray, init_state(run))
    return {devices: on_devices(run, fresh, devices) for devices in numbers}


def on_devices(run: RunConfig, fresh: State, devices: int) -> dict:
    """Losses, gradient norms and squares of the steps from a fresh state; the collectives."""
    mesh = make_mesh(devices)
    state = jax.device_put(fresh, replicated(mesh))
    step = make_step(run, mesh)
    programs = Programs(step, abstract(fresh, replicated(mesh)), {BUCKET: BUCKETS}, run, mesh)
    program = programs.get(BUCKET)
    draw, metrics, before = np.random.default_rng(0), [], compilations()
    for _ in range(STEPS):
        sequences = draw.integers(0, VOCAB, (BUCKETS, BUCKET, SEQ_LEN + 1)).astype(np.int32)
        state, told = program(state, sequences, np.int32(BUCKETS), SETTINGS)
        metrics.append([float(told.loss), float(told.grad_norm), float(told.squares)])
    return {
        "metrics": metrics,
        "compilations": compilations() - before,
        "collectives": [vars(c) for c in count(Program(program.as_text())).collectives],
        "parameters": run.model.counts().total,
    }


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    asked = {"float32": (1, 2, 4, 8), "bfloat16": (1, 8)}
    print(json.dumps({dtype: trained(dtype, numbers) for dtype, numbers in asked.items()}))
