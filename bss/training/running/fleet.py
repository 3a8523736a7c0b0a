"""Small runs of one shape side by side: one program for all, many steps a dispatch.

A model too small to fill a device spends its steps on launches. Here the states of a fleet lie on
a leading axis, what differs between its runs (seeds, data, rates, betas) is traced, each distinct
batch and setting given once, and the device takes many steps by itself. Every run keeps its own
directory, as if it were alone, and continues alone or in another fleet; its numbers are those it
has alone, up to rounding.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bss.training.config import RunConfig
from bss.training.devices.mesh import replicated
from bss.training.execution import Execution
from bss.training.optimizers.base import StepSettings
from bss.training.record.checkpoint import abstract
from bss.training.record.ledger import Ledger
from bss.training.running.prefetch import Dispatch, traced
from bss.training.running.stretches import STEPS, Stretches
from bss.training.source import Source
from bss.training.step import Metrics, State, make_step, many_steps


def fleet_key(run: RunConfig, execution: Execution) -> Hashable:
    """Runs of equal keys can be trained side by side; None for one that is trained alone.

    The key is all of a run but its seeds, its parent and what optimizer and schedule say is traced;
    where the steps lie is the plan's, as a branch has no batch before its fork.
    """
    if run.noise_scale.half_life:
        return None
    segments = tuple((s.start_tokens, s.end_tokens, s.batch) for s in execution.plan(run).segments)
    alike = dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, seed=0),
        optimizer=run.optimizer.without(run.optimizer.traced),
        schedule=run.schedule.without(run.schedule.traced),
        seed=0,
        parent=None,
    )
    return alike, segments


class Dispatches:
    """The steps that are left of runs that stand at the same tokens.

    Attributes:
        data_F: which of the distinct data a run reads.
        settings_F: which of the distinct settings it has.
    """

    def __init__(
        self, ledgers: Sequence[Ledger], sources: Mapping[Any, Source], stretches: Stretches
    ):
        """Of runs of one `fleet_key`, with the sources of their data."""
        first = ledgers[0]
        self.run, self.plan, self._stretches = first.run, first.plan, stretches
        self._ladder = first.execution.ladder(first.run)
        data = [ledger.run.data for ledger in ledgers]
        rules = [(ledger.run.optimizer, ledger.run.schedule) for ledger in ledgers]
        plans = {rule: ledger.plan for rule, ledger in zip(rules, ledgers, strict=True)}
        self._sources = [sources[one] for one in dict.fromkeys(data)]
        self._plans = [*plans.values()]
        self.data_F = np.array([[*dict.fromkeys(data)].index(one) for one in data])
        self.settings_F = np.array([[*plans].index(rule) for rule in rules])

    def __iter__(self) -> Iterator[Dispatch]:
        return map(self._of, self._stretches)

    def shapes(self, batch: int) -> tuple[jax.ShapeDtypeStruct, StepSettings]:
        """Of the sequences and the settings of a dispatch of that batch."""
        bucket, plans = self._ladder.bucket(batch), len(self._plans)
        sequences = (len(self._sources), STEPS, batch // bucket, bucket, self.plan.seq_len + 1)
        scalar = jax.ShapeDtypeStruct((STEPS, plans), jnp.float32)
        shares = jax.ShapeDtypeStruct((STEPS, plans, len(self.run.averages)), jnp.float32)
        settings = StepSettings(scalar, scalar, scalar, scalar, shares)
        return jax.ShapeDtypeStruct(sequences, jnp.int32), settings

    def _of(self, steps: range) -> Dispatch:
        plan, first, batch = self.plan, steps[0], self.plan.at(steps[0]).batch
        start, ends = plan.tokens_at(first), [plan.tokens_at(k + 1) for k in steps]
        shape = self.shapes(batch)[0].shape
        position, count = start // plan.seq_len, (ends[-1] - start) // plan.seq_len
        read = [s.batch(position, count, STEPS * shape[2], shape[3]) for s in self._sources]
        sequences = jnp.stack(read).reshape(shape)
        arguments = sequences, self._settings(first, ends), np.int32(len(ends))
        return Dispatch(tuple(ends), batch, shape[2], batch, arguments)

    def _settings(self, first: int, ends: Sequence[int]) -> StepSettings:
        """Those of each distinct plan, filled up behind the last step."""
        steps, plans = len(ends), self._plans
        each = [
            traced(plan.at(first + k), end, self.run.averages)
            for k, end in enumerate(ends)
            for plan in plans
        ]
        filled = np.minimum(np.arange(STEPS), steps - 1)
        stacked = (np.stack(values) for values in zip(*each, strict=True))
        return StepSettings(*(x.reshape(steps, len(plans), *x.shape[1:])[filled] for x in stacked))


def compile_steps(
    inputs: Dispatches, states: State, mesh: Mesh, options: dict[str, Any], attention: str
) -> dict[int, Any]:
    """The program of each batch: (states, sequences, settings, steps) -> states, metrics [K, F].

    Args:
        inputs: what it is given.
        states: shapes and shardings, the runs on a leading axis.
        mesh: of one device.
        options: the compiler's.
        attention: the kernel's name.
    """
    step = make_step(inputs.run, mesh, attention)
    data_F, settings_F = inputs.data_F, inputs.settings_F

    def take(states: State, sequences_UxKxNxbxT1: Any, settings_KxV: StepSettings, steps: Any):
        buckets = sequences_UxKxNxbxT1.shape[2]

        def one(k: jax.Array, states: State) -> tuple[State, Metrics]:
            own = jax.tree.map(lambda x: x[k][settings_F], settings_KxV)
            read = sequences_UxKxNxbxT1[:, k][data_F]
            return jax.vmap(step, (0, 0, None, 0))(states, read, buckets, own)

        return many_steps(one, STEPS, states, steps)

    whole, count = replicated(mesh), jax.ShapeDtypeStruct((), jnp.int32)
    jitted = jax.jit(take, in_shardings=whole, out_shardings=whole, donate_argnums=0)
    return {
        batch: jitted.lower(states, *inputs.shapes(batch), count).compile(options)
        for batch in dict.fromkeys(segment.batch for segment in inputs.plan.segments)
    }


def stack(
    states: Sequence[State], mesh: Mesh
) -> tuple[State, State, Callable[[State, int], State]]:
    """States on a leading axis, their shapes with shardings, and what picks one of them."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    shapes = abstract(stacked, replicated(mesh))
    pick = jax.jit(lambda states, m: jax.tree.map(lambda x: x[m], states))
    compiled = pick.lower(shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile()
    return stacked, shapes, lambda states, m: compiled(states, np.int32(m))
