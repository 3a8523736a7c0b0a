"""Several runs of one shape in one program, with many steps per dispatch.

A model that is too small to fill a device spends its steps on launches. The states of the runs get
a leading axis. Settings in which the runs differ (seeds, data, LRs, betas) are traced; each
distinct batch and setting is passed once. Every run has its own directory, as if it were alone, and
continues alone or with other runs; its numbers are those it has alone, up to rounding.
"""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bss.schedules.buckets import BucketSizes
from bss.training.batches import MAX_STEPS, Source, StepBatch, stack_settings
from bss.training.execution import Execution
from bss.training.optimizers import StepSettings
from bss.training.program_cache import compile_cached, step_key
from bss.training.recorder import RunRecorder
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import abstract, replicated
from bss.training.step import (
    Metrics,
    State,
    make_step,
    many_steps,
    settings_shapes,
    step_settings,
)


def vmap_key(run: RunConfig, execution: Execution) -> Hashable:
    """Return a key that is equal for runs which one program can train; None for a run alone.

    It contains the run without its seeds, its parent and the dynamic fields of optimizer and
    schedule. It also contains the plan's segments, because a forked run has no batch before its
    fork.
    """
    if run.noise_scale.half_life:
        return None
    segments = tuple((s.start_tokens, s.end_tokens, s.batch) for s in execution.plan(run).segments)
    alike = dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, seed=0),
        optimizer=run.optimizer.without(run.optimizer.dynamic_fields),
        schedule=run.schedule.without(run.schedule.dynamic_fields),
        seed=0,
        parent=None,
    )
    return alike, segments


class VmappedBatches:
    """The batches of runs of one `vmap_key` at the same tokens.

    Attributes:
        data_F: index into the distinct data configs, per run.
        settings_F: index into the distinct settings, per run.
    """

    def __init__(
        self,
        recorders: Sequence[RunRecorder],
        sources: Mapping[DataConfig, Source],
        buckets: BucketSizes,
    ) -> None:
        lead = recorders[0]
        self.run = lead.run
        self.plan = lead.plan
        self._buckets = buckets
        data = [one.run.data for one in recorders]
        rules = [(one.run.optimizer, one.run.schedule) for one in recorders]
        plans = {rule: one.plan for rule, one in zip(rules, recorders, strict=True)}
        self._sources = [sources[one] for one in dict.fromkeys(data)]
        self._plans = [*plans.values()]
        self.data_F = np.array([[*dict.fromkeys(data)].index(one) for one in data])
        self.settings_F = np.array([[*plans].index(rule) for rule in rules])

    def shapes(self, batch: int) -> tuple[jax.ShapeDtypeStruct, StepSettings]:
        """Return the shapes of sequences and settings of a dispatch of a batch size."""
        bucket = self._buckets.bucket(batch)
        sequences = len(self._sources), MAX_STEPS, batch // bucket, bucket, self.plan.seq_len + 1
        settings = settings_shapes(self.run, MAX_STEPS, len(self._plans))
        return jax.ShapeDtypeStruct(sequences, jnp.int32), settings

    def batch(self, steps: range) -> StepBatch:
        """Return the input of a dispatch that takes these steps."""
        plan = self.plan
        batch = plan.at(steps[0]).batch
        start = plan.tokens_at(steps[0])
        ends = [plan.tokens_at(k + 1) for k in steps]
        shape = self.shapes(batch)[0].shape
        position = start // plan.seq_len
        count = (ends[-1] - start) // plan.seq_len
        read = [s.batch(position, count, MAX_STEPS * shape[2], shape[3]) for s in self._sources]
        sequences = jnp.stack(read).reshape(shape)
        each = [self._settings(k, end) for k, end in zip(steps, ends, strict=True)]
        arguments = sequences, *stack_settings(each, MAX_STEPS)
        return StepBatch(tuple(ends), batch, shape[2], batch, arguments)

    def _settings(self, step: int, end: int) -> StepSettings:
        """Return the settings of a step, with a leading axis of distinct plans."""
        each = [step_settings(plan.at(step), end, self.run.averages) for plan in self._plans]
        return jax.tree.map(lambda *x: np.stack(x), *each)


def vmapped_step(
    batches: VmappedBatches, states: State, mesh: Mesh, options: dict[str, Any], attention: str
) -> Callable[[int], Any]:
    """Return the function that compiles a program for a batch size.

    The program maps (states, sequences, settings, steps) to (states, metrics [K, F]).

    Args:
        batches: the batches of the runs.
        states: shapes and shardings, with a leading axis of runs.
        mesh: a mesh of one device.
        options: compiler options.
        attention: name of the attention kernel.
    """
    step = make_step(batches.run, mesh, attention)
    data_F = batches.data_F
    settings_F = batches.settings_F

    def take(
        states: State, sequences_UxKxNxbxT1: Any, settings_KxV: StepSettings, steps: Any
    ) -> tuple[State, Metrics]:
        buckets = sequences_UxKxNxbxT1.shape[2]

        def one(k: jax.Array, states: State) -> tuple[State, Metrics]:
            own = jax.tree.map(lambda x: x[k][settings_F], settings_KxV)
            read = sequences_UxKxNxbxT1[:, k][data_F]
            return jax.vmap(step, (0, 0, None, 0))(states, read, buckets, own)

        return many_steps(one, MAX_STEPS, states, steps)

    whole = replicated(mesh)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    jitted = jax.jit(take, in_shardings=whole, out_shardings=whole, donate_argnums=0)
    key = "steps", step_key(batches.run), attention, data_F.tobytes(), settings_F.tobytes()
    return lambda b: compile_cached(key, jitted, states, *batches.shapes(b), count, options=options)


def stack(
    states: Sequence[State], mesh: Mesh
) -> tuple[State, State, Callable[[State, int], State]]:
    """Return stacked states, their shapes, and the compiled function that selects one of them."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    shapes = abstract(stacked, replicated(mesh))
    return stacked, shapes, lambda states, m: _select(states, np.int32(m))


@jax.jit
def _select(states: State, m: jax.Array) -> State:
    return jax.tree.map(lambda x: x[m], states)
