"""Every program of a run, compiled for a machine that need not be here, and what it says.

The programs are those that training compiles, from shapes alone: no data are read, and no state is
made. All numbers are of one device, in one bucket of a step or in one evaluation.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax.errors import JaxRuntimeError

from bss.machines.absent import Machine
from bss.machines.counts import Counted
from bss.machines.program import (
    Bound,
    Expected,
    Memory,
    bound,
    expected,
    memory,
    read,
    refused,
)
from bss.training.config import RunConfig
from bss.training.devices.mesh import mesh_of
from bss.training.evaluation import Evaluation
from bss.training.execution import Execution, compiler_options
from bss.training.running.buckets import Programs
from bss.training.step import State, make_step, state_shapes
from bss.values import to_dict


@dataclass(frozen=True)
class Examined:
    """One program on a machine.

    Attributes:
        program: "train" or "evaluation".
        bucket: sequences that all devices handle at once.
        memory: of one device.
        reading: None where the compiler refused it.
        bound: None where it was refused, or the device is not in the table of targets.
        compile_seconds: by the clock.
        expected: None where such a device was not measured besides.
    """

    program: str
    bucket: int
    memory: Memory
    reading: Counted | None
    bound: Bound | None
    compile_seconds: float
    expected: Expected | None = None

    @property
    def tokens_per_second(self) -> float:
        """That are expected, or at most where no such device was measured; 0 where refused."""
        told = self.expected or self.bound
        return told.tokens_per_second if told else 0.0

    def entry(self) -> dict[str, Any]:
        """As one flat group of fields."""
        empty = dict.fromkeys(f.name for f in dataclasses.fields(Counted))
        return {
            "program": self.program,
            "bucket": self.bucket,
            **to_dict(self.memory),
            **(to_dict(self.reading) if self.reading else empty),
            "bound": to_dict(self.bound),
            "expected": to_dict(self.expected),
            "compile_seconds": round(self.compile_seconds, 2),
        }


def examine(
    run: RunConfig, capacity: Mapping[int, int], execution: Execution, machine: Machine
) -> Iterator[Examined]:
    """The program of each bucket, then that of the evaluation along the run.

    Args:
        run: of which only what shapes its programs counts.
        capacity: by bucket the most of it that one step accumulates.
        execution: its evaluation bucket, and whether it is repeatable.
        machine: what it is compiled for.

    Raises:
        InputError: where a bucket cannot be split over the devices.
    """
    mesh = mesh_of(machine.devices, execution.fsdp)
    state = state_shapes(run, mesh)
    options = compiler_options(execution, mesh)
    attention = execution.attention_of(run, mesh)
    layers = execution.layers_of(run, mesh)
    step = make_step(run, mesh, attention, whole_gradient=execution.whole_gradient, layers=layers)
    programs = Programs(step, state, capacity, run, mesh, options)
    flops = run.model.training_flops_per_token(run.data.seq_len)
    for bucket in capacity:
        tokens = bucket * run.data.seq_len
        of_step = machine, state, 0, tokens, tokens * flops
        yield _examined("train", bucket, partial(programs.get, bucket), *of_step)

    seq_len = run.evaluation.seq_len or run.data.seq_len
    n = max(run.evaluation.tokens // seq_len, 1)
    evaluation = Evaluation(run, mesh, state, execution.evaluation_bucket, options, attention)
    shape = evaluation.shape(n, seq_len + 1)
    # The state stays where it is; an average is a copy besides.
    beside = _bytes(state) - (0 if run.averages else _bytes(state.params))
    flops = n * seq_len * run.model.forward_flops_per_token(seq_len)
    compiled = partial(evaluation.sums_of, n, seq_len + 1, evaluation.loss)
    yield _examined("evaluation", shape[1], compiled, machine, state, beside, n * seq_len, flops)


def _examined(
    name: str,
    bucket: int,
    compiled: Callable[[], Any],
    machine: Machine,
    state: State,
    beside: int,
    tokens: int,
    flops: float,
) -> Examined:
    """A program of that name and bucket, which handles so many tokens at the model's own FLOPs."""
    start, target, state_bytes = time.perf_counter(), machine.target, _bytes(state)
    try:
        program = compiled()
    except JaxRuntimeError as error:
        taken = refused(str(error), state_bytes)
        if taken is None:
            raise
        seconds = time.perf_counter() - start
        return Examined(name, bucket, taken, None, None, seconds)
    seconds = time.perf_counter() - start
    taken, reading = memory(program, state_bytes, beside, machine.pool), read(program)
    if target is None:
        return Examined(name, bucket, taken, reading, None, seconds)
    of_all = reading, target, tokens, flops, len(machine.devices)
    return Examined(name, bucket, taken, reading, bound(*of_all), seconds, expected(*of_all))


def _bytes(tree: Any) -> int:
    """On one device."""
    arrays = jax.tree.leaves(tree)
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in arrays)
