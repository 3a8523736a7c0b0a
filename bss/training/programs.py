"""The compiled programs of runs: one per micro-batch shape, and the evaluation.

A batch change is another traced count or another program: it compiles nothing. Programs are
compiled ahead of time by a thread.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
from jax.sharding import Mesh

from bss.errors import InputError
from bss.models.base import DEFAULT_LAYERS, Layers
from bss.training import sharding
from bss.training.batches import (
    MAX_STEPS,
    Source,
    StepBatch,
    max_steps_per_dispatch,
    step_batches,
    step_chunks,
)
from bss.training.distributed import host_action_shapes, with_host_action
from bss.training.evaluation import Evaluation, Evaluator, HeldOut
from bss.training.execution import compiler_options, describe
from bss.training.program_cache import compiled, step_key
from bss.training.recorder import RunRecorder
from bss.training.run_config import DataConfig, RunConfig
from bss.training.step import Metrics, State, Step, make_step, many_steps, settings_shapes
from bss.training.vmapped import VmappedBatches, stack, vmapped_step

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"

Programs = dict[int, "Future[Any]"]
"""Compiled programs by batch or micro-batch size."""


@contextmanager
def compilation_counter() -> Iterator[Callable[[], int]]:
    """Count the programs that this thread compiles in the block, loads from a cache included."""
    thread, count = threading.get_ident(), 0

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        nonlocal count
        if event == _COMPILE_EVENT and threading.get_ident() == thread:
            count += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: count
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def compiling(compile_one: Callable[[int], Any], keys: Iterable[int]) -> Programs:
    """Compile programs by key, in the order of their keys, in a thread."""
    pool = ThreadPoolExecutor(1, "compile")
    programs = {key: pool.submit(compile_one, key) for key in keys}
    pool.shutdown(wait=False)
    return programs


def step_programs(
    run: RunConfig,
    abstract_state: Any,
    max_microbatches: Mapping[int, int],
    mesh: Mesh,
    options: dict[str, Any] | None = None,
    most: int = 1,
    attention: str = "reference",
    layers: Layers = DEFAULT_LAYERS,
) -> Programs:
    """Compile a step for every micro-batch size.

    Shardings and the mesh are passed explicitly, because a thread has no ambient mesh.

    Args:
        run: the run.
        abstract_state: shapes and shardings of the state.
        max_microbatches: by micro-batch size the most of them that one step accumulates.
        mesh: the devices.
        options: compiler options.
        most: maximum of steps per dispatch. If it is above 1, the sequences are those of all steps,
            the settings have a leading axis, and the number of steps is the last argument.
        attention: name of the attention kernel.
        layers: see `Execution`.

    Raises:
        InputError: If a micro-batch cannot be split over the devices.
    """
    for bucket in max_microbatches:
        if bucket % mesh.size:
            raise InputError(
                f"bucket {bucket} cannot be split over {mesh.size} devices; "
                f"use buckets that are multiples of {mesh.size}"
            )
    whole, split = sharding.replicated(mesh), sharding.sequence_sharding(mesh)
    actions = host_action_shapes(mesh)
    step = make_step(run, mesh, attention, layers=layers)
    step = with_host_action(step) if actions else step
    state = sharding.shardings_of(abstract_state)
    shardings = (state, split, whole, whole, *(x.sharding for x in actions))
    if most > 1:
        step, shardings = _repeated(step, most), (*shardings, whole)
    jitted = jax.jit(step, in_shardings=shardings, out_shardings=(state, whole), donate_argnums=0)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    settings = settings_shapes(run, *[most][: most > 1])
    key = "step", step_key(run), attention, layers, most

    def compile_one(bucket: int) -> Any:
        shape = most * max_microbatches[bucket], bucket, run.data.seq_len + 1
        sequences = jax.ShapeDtypeStruct(shape, jnp.int32)
        arguments = abstract_state, sequences, count, settings, *actions, *[count][: most > 1]
        return compiled(key, jitted, *arguments, options=options)

    return compiling(compile_one, max_microbatches)


def _repeated(step: Step, most: int) -> Any:
    """Return a function (state, sequences, count, settings [K], steps) that takes several steps."""

    def take(state: State, sequences_NxbxT1: Any, count: Any, settings_K: Any, steps: Any):
        microbatches = len(sequences_NxbxT1) // most

        def one(k: jax.Array, state: State) -> tuple[State, Metrics]:
            own = jax.lax.dynamic_slice_in_dim(sequences_NxbxT1, k * count, microbatches)
            return step(state, own, count, jax.tree.map(lambda x: x[k], settings_K))

        return many_steps(one, most, state, steps)

    return take


class Compiled(NamedTuple):
    """The compiled programs and settings of a group of runs.

    Attributes:
        state: the state of one run, or of several with a leading axis.
        batches: the input of every dispatch.
        programs: the programs that take them.
        evaluator: the evaluation.
        select: maps the state and the index of a run to the state of that run.
    """

    state: State
    batches: Iterator[StepBatch]
    programs: Programs
    evaluator: Evaluator
    select: Callable[[State, int], State]


def compile_group(
    group: Sequence[tuple[RunRecorder, State]],
    sources: Mapping[DataConfig, Source],
    mesh: Mesh,
    *,
    vmapped: bool,
) -> Compiled:
    """Check the evaluation and the attention kernel of runs, and compile their programs."""
    recorders = [recorder for recorder, _ in group]
    lead = recorders[0]
    run, execution, plan, source = lead.run, lead.execution, lead.plan, sources[lead.run.data]
    options = compiler_options(execution, mesh)
    held_out = HeldOut.read(run, source, Path(execution.data))
    attention = execution.attention_of(run, mesh)
    layers = DEFAULT_LAYERS if vmapped else execution.layers_of(run, mesh)
    ids = " ".join(sorted(recorder.run.id for recorder in recorders))
    together = hashlib.sha256(ids.encode()).hexdigest()[:16] if len(group) > 1 else ""
    record = describe(mesh, execution, attention, len(group), layers) | {"mates": together}
    for recorder in recorders:
        recorder.add_execution(record)
    most = min(execution.steps or MAX_STEPS, MAX_STEPS)
    most = most if vmapped else max_steps_per_dispatch(execution, mesh)
    flops = len(group) * run.model.training_flops_per_token(plan.seq_len)
    events = frozenset(lead.rows | lead.forks | {plan.tokens})
    chunks = step_chunks(plan, lead.first_step, events, most, 0.0 if execution.steps else flops)
    if vmapped:
        state, shapes, select = stack([state for _, state in group], mesh)
        inputs = VmappedBatches([one.run for one in recorders], execution, sources)
        batches = map(inputs.batch, chunks)
        sizes = dict.fromkeys(segment.batch for segment in plan.segments)
        programs = compiling(vmapped_step(inputs, shapes, mesh, options, attention), sizes)
    else:
        ((_, state),) = group
        shapes, select = sharding.abstract(state), lambda state, _: state
        buckets = execution.bucket_sizes(run)
        batches = step_batches(plan, chunks, most, source, buckets, run.averages)
        microbatches, how = buckets.max_microbatches(plan), (attention, layers)
        programs = step_programs(run, shapes, microbatches, mesh, options, most, *how)
    bucket = execution.evaluation_bucket
    evaluation = Evaluation(run, mesh, shapes, bucket, options, attention, vmapped)
    evaluator = Evaluator(held_out, evaluation)
    if sharding.on_gpus(mesh) and not vmapped:
        # XLA autotunes kernels on the device, which breaks cuDNN's graph capture.
        for program in programs.values():
            program.result()
    return Compiled(state, batches, programs, evaluator, select)
