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
    Source,
    StepBatch,
    max_steps_per_dispatch,
    microbatch_capacity,
    step_batches,
    step_capacity,
    step_chunks,
)
from bss.training.bucket_choice import choose_buckets
from bss.training.distributed import host_action_shapes, with_host_action
from bss.training.evaluation import Evaluation, Evaluator, HeldOut
from bss.training.execution import compiler_options, describe
from bss.training.program_cache import compile_cached, step_key
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
    thread = threading.get_ident()
    count = 0

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        nonlocal count
        if event == _COMPILE_EVENT and threading.get_ident() == thread:
            count += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: count
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def compile_in_thread(compile_one: Callable[[int], Any], keys: Iterable[int]) -> Programs:
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
        most: the capacity in steps, see `step_capacity`. If it is above 1, the sequences are those
            of all steps, the settings have a leading axis, and the last argument is the number of
            steps.
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
    whole = sharding.replicated(mesh)
    split = sharding.sequence_sharding(mesh)
    actions = host_action_shapes(mesh)
    step = make_step(run, mesh, attention, layers=layers)
    step = with_host_action(step) if actions else step
    state = sharding.shardings_of(abstract_state)
    shardings = (state, split, whole, whole, *(x.sharding for x in actions))
    count = jax.ShapeDtypeStruct((), jnp.int32)
    settings = settings_shapes(run)
    last = actions
    if most > 1:
        step = _repeat(step, most)
        settings = settings_shapes(run, most)
        shardings = (*shardings, whole)
        last = (*actions, count)
    jitted = jax.jit(step, in_shardings=shardings, out_shardings=(state, whole), donate_argnums=0)
    key = "step", step_key(run), attention, layers, most

    def compile_one(bucket: int) -> Any:
        shape = most * max_microbatches[bucket], bucket, run.data.seq_len + 1
        sequences = jax.ShapeDtypeStruct(shape, jnp.int32)
        arguments = abstract_state, sequences, count, settings, *last
        return compile_cached(key, jitted, *arguments, options=options)

    return compile_in_thread(compile_one, max_microbatches)


def _repeat(step: Step, most: int) -> Any:
    """Return a function (state, sequences, count, settings [K], steps) that takes several steps."""

    def take(
        state: State, sequences_NxbxT1: Any, count: Any, settings_K: Any, steps: Any
    ) -> tuple[State, Metrics]:
        microbatches = len(sequences_NxbxT1) // most

        def one(k: jax.Array, state: State) -> tuple[State, Metrics]:
            own = jax.lax.dynamic_slice_in_dim(sequences_NxbxT1, k * count, microbatches)
            return step(state, own, count, jax.tree.map(lambda x: x[k], settings_K))

        return many_steps(one, most, state, steps)

    return take


class CompiledGroup(NamedTuple):
    """The programs and shapes with which a group of runs is trained.

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
) -> CompiledGroup:
    """Check the evaluation and the attention kernel of runs, and compile their programs."""
    recorders = [recorder for recorder, _ in group]
    states = [state for _, state in group]
    lead = recorders[0]
    run = lead.run
    before = lead.directory.last_execution()
    execution = choose_buckets(lead.execution, run, mesh, before, len(group))
    buckets = execution.bucket_sizes(run)
    held_out = HeldOut.read(run, sources[run.data], Path(execution.data))
    options = compiler_options(execution, mesh)
    attention = execution.attention_of(run, mesh)
    if vmapped and execution.logits_dtype != "float32":
        raise InputError("execution.logits_dtype: bfloat16 given; write float32: runs are vmapped")
    layers = DEFAULT_LAYERS if vmapped else execution.layers_of(run, mesh)
    record = describe(mesh, execution, attention, len(group), layers)
    capacity = step_capacity(execution, mesh, vmapped=vmapped)
    record["steps"] = capacity
    record["mates"] = _identify_mates(recorders)
    for recorder in recorders:
        recorder.add_execution(record)
    most = max_steps_per_dispatch(execution, mesh, vmapped=vmapped)
    chunks = _chunk_steps(lead, len(group), most)
    if vmapped:
        state, shapes, select = stack(states, mesh)
        inputs = VmappedBatches(recorders, sources, buckets)
        batches = map(inputs.batch, chunks)
        sizes = dict.fromkeys(segment.batch for segment in lead.plan.segments)
        compile_one = vmapped_step(inputs, shapes, mesh, options, attention)
        programs = compile_in_thread(compile_one, sizes)
    else:
        (state,) = states
        shapes = sharding.abstract(state)
        select = _select_only
        microbatches = microbatch_capacity(buckets, lead.plan, capacity)
        batches = step_batches(
            lead.plan, chunks, capacity, sources[run.data], buckets, microbatches, run.averages
        )
        programs = step_programs(
            run, shapes, microbatches, mesh, options, capacity, attention, layers
        )
    bucket = execution.evaluation_bucket
    evaluation = Evaluation(run, mesh, shapes, bucket, options, attention, vmapped)
    evaluator = Evaluator(held_out, evaluation)
    if sharding.on_gpus(mesh) and not vmapped:
        # XLA autotunes kernels on the device, which breaks cuDNN's graph capture.
        for program in programs.values():
            program.result()
    return CompiledGroup(state, batches, programs, evaluator, select)


def _identify_mates(recorders: Sequence[RunRecorder]) -> str:
    """Return what identifies the runs of one program; "" for a run alone."""
    if len(recorders) == 1:
        return ""
    ids = " ".join(sorted(recorder.run.id for recorder in recorders))
    return hashlib.sha256(ids.encode()).hexdigest()[:16]


def _chunk_steps(lead: RunRecorder, runs: int, most: int) -> Iterator[range]:
    """Yield the steps of each dispatch of runs that are trained together."""
    plan = lead.plan
    events = frozenset(lead.rows | lead.forks | {plan.tokens})
    flops = 0.0
    if not lead.execution.steps_per_dispatch:
        flops = float(runs * lead.run.model.training_flops_per_token(plan.seq_len))
    return step_chunks(plan, lead.first_step, events, most, flops)


def _select_only(state: State, _: int) -> State:
    """Return the state of the only run."""
    return state
