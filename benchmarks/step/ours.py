"""Our step of one batch size, dispatched as the loop dispatches it."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks.race import Turn
from benchmarks.step.shapes import BETAS, DECAY, LR, Shape, batches
from bss.schedules.buckets import LARGEST, BucketSizes
from bss.training.allocator import keep_freed_memory
from bss.training.bucket_choice import core_cache, largest_bucket
from bss.training.execution import Execution, compiler_options
from bss.training.optimizers import StepSettings
from bss.training.programs import step_programs
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import mesh_of, replicated
from bss.training.step import State, init_state, state_shapes

SETTINGS = StepSettings(
    np.float32(LR),
    np.float32(1 - BETAS[0]),
    np.float32(1 - BETAS[1]),
    np.float32(DECAY),
    np.zeros(0, np.float32),
)


def ours(
    steps_a_dispatch: int = 1,
    buckets: Sequence[int] = (),
    cores: int = 1,
    keep: bool = True,
    **fields: Any,
) -> Turn:
    """Steps of one batch size, several per dispatch; turns are multiples of them.

    Args:
        steps_a_dispatch: steps of a dispatch.
        buckets: micro-batch sizes; () for the default of a run.
        cores: cores of the variant.
        keep: Whether freed memory is kept, as `bss train` does.
        fields: Fields of the shape.
    """
    if keep:
        keep_freed_memory()
    shape = Shape(**fields)
    run = RunConfig(shape.config, DataConfig(seq_len=shape.seq_len))
    mesh = mesh_of(jax.local_devices()[:1])
    most = LARGEST if shape.gpu else largest_bucket(run, 1, core_cache(), cores)
    sizes = BucketSizes([*buckets] or range(1, most + 1))
    bucket = sizes.bucket(shape.batch)
    whole = replicated(mesh)
    rows = batches(shape, run.model.vocab_size)
    rows = rows.reshape(len(rows) // steps_a_dispatch, -1, bucket, shape.seq_len + 1)
    state = jax.jit(lambda: init_state(run), out_shardings=whole)()
    sequences = cycle([jax.device_put(one, whole) for one in rows])
    loss: Any = np.nan
    program = dispatch(run, mesh, bucket, shape.batch // bucket, steps_a_dispatch)

    def turn(steps: int) -> float:
        nonlocal state, loss
        for _ in range(steps // steps_a_dispatch):
            state, loss = program(state, next(sequences))
        jax.block_until_ready(state)
        return float(np.ravel(loss)[-1])

    return turn


def dispatch(run: RunConfig, mesh: Mesh, bucket: int, count: int, most: int) -> Any:
    """Return the compiled program of `most` steps with `count` micro-batches, as in training.

    Returns:
        (state, sequences [most · count, bucket, T+1]) -> state, loss of each step.
    """
    execution = Execution()
    shapes = state_shapes(run, mesh)
    options = compiler_options(execution, mesh)
    attention = execution.attention_of(run, mesh)
    programs = step_programs(run, shapes, {bucket: count}, mesh, options, most, attention)
    program = programs[bucket].result()
    settings = SETTINGS
    how = ()
    if most > 1:
        settings = jax.tree.map(lambda x: np.stack([x] * most), SETTINGS)
        how = (np.int32(most),)

    def take(state: State, sequences: jax.Array) -> tuple[State, jax.Array]:
        state, metrics = program(state, sequences, np.int32(count), settings, *how)
        return state, metrics.loss

    return take
