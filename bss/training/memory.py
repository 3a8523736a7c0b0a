"""Memory and FLOPs of a run's train step, compiled from shapes for devices that may be absent."""

import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.errors import JaxRuntimeError

from bss.training.execution import Execution, compiler_options
from bss.training.out_of_memory import lacks_memory
from bss.training.programs import step_programs
from bss.training.run_config import RunConfig
from bss.training.sharding import mesh_of
from bss.training.step import state_shapes


def step_memory(
    run: RunConfig, execution: Execution, buckets: list[int], devices: list[Any]
) -> Iterator[dict[str, Any]]:
    """Compile the train step of each micro-batch size.

    Args:
        run: the run.
        execution: how it is executed.
        buckets: micro-batch sizes in sequences.
        devices: JAX devices, or descriptions of absent ones.

    Yields:
        bucket; state_bytes and peak_bytes of one device, the peak None if the compiler refuses the
        program; model_flops of all devices.
    """
    mesh = mesh_of(devices, execution.fsdp)
    seq_len = run.data.seq_len
    state = state_shapes(run, mesh)
    programs = step_programs(
        run,
        state,
        dict.fromkeys(buckets, 1),
        mesh,
        compiler_options(execution, mesh),
        attention=execution.attention_of(run, mesh),
        layers=execution.layers_of(run, mesh),
    )
    arrays = jax.tree.leaves(state)
    held = sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in arrays)
    for bucket in buckets:
        try:
            uses = programs[bucket].result().memory_analysis()
            peak = uses.argument_size_in_bytes + uses.output_size_in_bytes
            peak += uses.temp_size_in_bytes + uses.generated_code_size_in_bytes
            peak -= uses.alias_size_in_bytes
        except JaxRuntimeError as error:
            if not lacks_memory(error):
                raise
            peak = None  # a TPU's compiler refuses what does not fit
        flops = bucket * seq_len * run.model.training_flops_per_token(seq_len)
        yield {
            "bucket": bucket,
            "state_bytes": held,
            "peak_bytes": peak,
            "model_flops": flops,
        }
