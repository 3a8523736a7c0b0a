"""The project's own program of one bucket on one device, with a state and random tokens."""

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bss.models.sizes import named
from bss.training.execution import Execution, compiler_options
from bss.training.optimizers import StepSettings
from bss.training.programs import step_programs
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import abstract, mesh_of, replicated, sequence_sharding
from bss.training.step import State, init_state

BUCKETS = 2
"""Buckets of a step, at most."""

SETTINGS = StepSettings(*map(np.float32, (1e-3, 0.1, 0.05, 0.0)), np.zeros(0, np.float32))  # type: ignore[call-arg]


def memory_of(device: Any) -> Mapping[str, int]:
    """Return a device's memory statistics; empty if it has none, e.g. CPUs."""
    return device.memory_stats() or {}


def run_of(model: str, seq_len: int, **changes: Any) -> RunConfig:
    """Return a run of a named size, of which only what shapes its programs counts."""
    return RunConfig(dataclasses.replace(named(model), **changes), DataConfig(seq_len=seq_len))


def tokens(run: RunConfig, count: int) -> np.ndarray:
    """Sequences of random tokens, int32 [count, T+1]: their frequencies are Zipf's, as of words."""
    vocab = run.model.vocab_size
    often = 1 / np.arange(1, vocab + 1)
    size = (count, run.data.seq_len + 1)
    draw = np.random.default_rng(0)
    return draw.choice(vocab, size, p=often / often.sum()).astype(np.int32)


class Trainer:
    """A compiled step and what it is given; `state` and `metrics` are those after the last step.

    Refuses, as InputError, an attention kernel that the device cannot run.

    Attributes:
        program: compiled for the bucket.
        compile_seconds: wall time, with tracing.
        state_bytes: of the training state.
    """

    def __init__(self, run: RunConfig, bucket: int, execution: Execution):
        self.run = run
        self.mesh = mesh_of(jax.local_devices()[:1])
        whole = replicated(self.mesh)
        shapes = abstract(jax.eval_shape(lambda: init_state(run)), whole)
        self.state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
        start = time.perf_counter()
        options = compiler_options(execution, self.mesh)
        layers = execution.layers_of(run, self.mesh)
        how = execution.attention_of(run, self.mesh), layers
        programs = step_programs(run, shapes, {bucket: BUCKETS}, self.mesh, options, 1, *how)
        self.program = programs[bucket].result()
        self.compile_seconds = time.perf_counter() - start
        sequences = tokens(run, BUCKETS * bucket).reshape(BUCKETS, bucket, -1)
        self._sequences = jax.device_put(sequences, sequence_sharding(self.mesh))
        self.state: State | None = None
        self.metrics: Any = None

    def start(self) -> None:
        """Begin anew from the run's seed."""
        self.state = None  # there may be no room for both
        self.state = _fresh(_plain(self.run), self.mesh)()

    def step(self, buckets: int) -> None:
        """Dispatches one step."""
        self.state, self.metrics = self.program(
            self.state, self._sequences, np.int32(buckets), SETTINGS
        )

    def wait(self) -> None:
        """Until the last step is done."""
        jax.block_until_ready((self.state, self.metrics))


def _plain(run: RunConfig) -> RunConfig:
    """Without remat, which changes no state: what makes a state is compiled once."""
    return dataclasses.replace(run, model=dataclasses.replace(run.model, remat=False))  # type: ignore[call-arg]


@functools.cache
def _fresh(run: RunConfig, mesh: Mesh) -> Any:
    return jax.jit(lambda: init_state(run), out_shardings=replicated(mesh))
