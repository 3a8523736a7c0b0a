"""Our step of one batch size, dispatched as the loop dispatches it."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.race import Turn
from benchmarks.step.shapes import BETAS, DECAY, LR, Shape, batches
from bss.models.sizes import named
from bss.training.config import DataConfig, RunConfig
from bss.training.devices.mesh import mesh_of, replicated
from bss.training.execution import Execution
from bss.training.optimizers.base import StepSettings
from bss.training.running.bucketing import Ladder
from bss.training.step import State, init_state, make_step

SETTINGS = StepSettings(
    np.float32(LR),
    np.float32(1 - BETAS[0]),
    np.float32(1 - BETAS[1]),
    np.float32(DECAY),
    np.zeros(0, np.float32),
)


def ours(steps_a_dispatch: int = 1, buckets: Sequence[int] = (), **fields: Any) -> Turn:
    """Steps of one batch after the other, so many a dispatch; turns are multiples of them.

    `buckets` as in `Execution`.
    """
    shape = Shape(**fields)
    run = RunConfig(named(shape.model), DataConfig(seq_len=shape.seq_len))
    mesh = mesh_of(jax.local_devices()[:1])
    bucket, whole = Ladder((*buckets,)).bucket(shape.batch), replicated(mesh)
    rows = batches(shape, run.model.vocab_size)
    rows = rows.reshape(-1, steps_a_dispatch, shape.batch // bucket, bucket, shape.seq_len + 1)
    state = jax.jit(lambda: init_state(run), out_shardings=whole)()
    sequences = cycle([jax.device_put(one, whole) for one in rows])
    loss: Any = np.nan
    program = dispatch(run, mesh, state, rows.shape[1:])

    def turn(steps: int) -> float:
        nonlocal state, loss
        for _ in range(steps // steps_a_dispatch):
            state, loss = program(state, next(sequences))
        jax.block_until_ready(state)
        return float(loss)

    return turn


def dispatch(run: RunConfig, mesh: Any, state: State, shape: tuple[int, ...]) -> Any:
    """What takes steps of sequences [K, N, b, T+1], as a session compiles it.

    Returns:
        (state, sequences) -> state, loss of the last step.
    """
    step, whole = make_step(run, mesh, Execution().attention_of(run, mesh)), replicated(mesh)
    K, N = shape[:2]

    def one(state: State, sequences_1xNxbxT1: Any, count: Any, settings: StepSettings):
        state, metrics = step(state, sequences_1xNxbxT1[0], count, settings)
        return state, metrics.loss

    def several(state: State, sequences_KxNxbxT1: Any, count: Any, settings_K: StepSettings):
        def take(k: Any, carry: Any):
            own = jax.tree.map(lambda x: x[k], settings_K)
            state, metrics = step(carry[0], sequences_KxNxbxT1[k], jnp.int32(N), own)
            return state, metrics.loss

        return jax.lax.fori_loop(0, count, take, (state, jnp.zeros(())))

    function, count, settings = one, np.int32(N), SETTINGS
    if K > 1:
        function, count = several, np.int32(K)
        settings = jax.tree.map(lambda x: np.stack([x] * K), SETTINGS)
    jitted = jax.jit(function, in_shardings=whole, out_shardings=whole, donate_argnums=0)
    sequences = jax.ShapeDtypeStruct(shape, jnp.int32)
    program = jitted.lower(state, sequences, count, settings).compile()
    return lambda state, sequences: program(state, sequences, count, settings)
