"""How fast a machine trains some runs, alone or side by side: seconds of their own steps.

Nothing is evaluated or written. The programs are those that will train them, so what is compiled
here is in the compilation cache then.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import jax

from bss.errors import InputError
from bss.provenance import machine
from bss.schedules.plan import Plan, Segment
from bss.training.config import RunConfig
from bss.training.devices.mesh import make_mesh
from bss.training.execution import Execution, compiler_options, peak_flops
from bss.training.running.buckets import Programs
from bss.training.running.fleet import Dispatches, compile_steps, stack
from bss.training.running.prefetch import prefetch, step_inputs
from bss.training.running.stretches import STEPS, Stretches, steps_at_once
from bss.training.source import open_source
from bss.training.step import init_state, make_step, state_shapes

_SECONDS = 1.0
_LEAST = 7  # dispatches: those that were made ahead are of one step


class _Book(NamedTuple):
    """What `Dispatches` reads of a run's ledger."""

    run: RunConfig
    execution: Execution
    plan: Plan


def told(
    runs: Sequence[RunConfig], execution: Execution, stop: Event, *, fleet: bool
) -> dict[str, Any]:
    """This machine: its name, platform, devices of a run, peak; and its speed at `runs`, if any.

    Raises:
        InputError: its memory does not hold them; what `tokens_per_second` says.
    """
    device, mesh = jax.local_devices()[0], make_mesh(execution.devices, execution.fsdp)
    facts = {"name": machine(), "platform": device.platform, "devices": mesh.size}
    speed = tokens_per_second(runs, execution, stop, fleet=fleet) if runs else 0.0
    return {**facts, "peak_flops": peak_flops(), "tokens_per_second": speed}


def longest(plan: Plan) -> Segment:
    """Of a plan's stretches of one batch, that of the most tokens."""
    return max(plan.segments, key=lambda segment: segment.end_tokens - segment.start_tokens)


def tokens_per_second(
    runs: Sequence[RunConfig], execution: Execution, stop: Event, *, fleet: bool
) -> float:
    """Of runs of one `fleet_key` together, at the batch at which they take the most tokens.

    Args:
        runs: one, or those of a `fleet`.
        execution: where and how they are trained.
        stop: set it to be told early.
        fleet: whether they are trained by the program of a fleet.

    Raises:
        InputError: the memory does not hold them; data or devices do not do.
    """
    try:
        return _timed(runs, execution, stop, fleet=fleet)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise InputError(f"{len(runs)} runs at once: the memory does not hold them") from None


def _timed(runs: Sequence[RunConfig], execution: Execution, stop: Event, *, fleet: bool) -> float:
    mesh, plan = make_mesh(execution.devices, execution.fsdp), execution.plan(runs[0])
    first, batch = longest(plan).start_step, longest(plan).batch
    most = STEPS if fleet else steps_at_once(execution, mesh)
    flops = len(runs) * runs[0].model.training_flops_per_token(plan.seq_len)
    stretches = Stretches(plan, first, frozenset(), most, 0.0 if execution.steps else flops)
    inputs, programs, state = _made(runs, execution, mesh, stretches, fleet=fleet)
    best, began = 0.0, time.perf_counter()
    with contextlib.closing(prefetch(iter(inputs))) as prefetched:
        last = time.perf_counter()
        for n, item in enumerate(prefetched):
            if item.batch != batch or stop.is_set():
                break
            program = programs[item.program] if fleet else programs.get(item.program)
            last = last if n else time.perf_counter()
            state, _ = jax.block_until_ready(program(state, *item.arguments))
            now = time.perf_counter()
            tokens = len(runs) * len(item.ends) * batch * plan.seq_len
            best, last = max(best, tokens / (now - last)), now
            began = began if n else now  # the first may have waited for its program
            if n + 1 >= _LEAST and now - began > _SECONDS:
                break
    return best


def _made(
    runs: Sequence[RunConfig], execution: Execution, mesh: Any, stretches: Stretches, *, fleet: bool
) -> tuple[Any, Any, Any]:
    """The inputs, programs and state that a session of the runs would have."""
    run, plan, options = runs[0], execution.plan(runs[0]), compiler_options(execution, mesh)
    sources = {one.data: open_source(one, Path(execution.data), mesh) for one in runs}
    shapes, attention = state_shapes(run, mesh), execution.attention_of(run, mesh)
    shardings = jax.tree.map(lambda x: x.sharding, shapes)
    state = jax.jit(lambda: init_state(run), out_shardings=shardings)()
    if fleet:
        state, shapes, _ = stack([state] * len(runs), mesh)
        books: Any = [_Book(one, execution, execution.plan(one)) for one in runs]
        inputs = Dispatches(books, sources, stretches)
        return inputs, compile_steps(inputs, shapes, mesh, options, attention), state
    ladder = execution.ladder(run)
    bucket = ladder.bucket(longest(plan).batch)
    capacity: Mapping[int, int] = {bucket: ladder.capacity(plan)[bucket]}
    step = make_step(run, mesh, attention, whole_gradient=execution.whole_gradient)
    programs = Programs(step, shapes, capacity, run, mesh, options, stretches.most)
    inputs = step_inputs(plan, stretches, sources[run.data], ladder, run.averages)
    return inputs, programs, state
