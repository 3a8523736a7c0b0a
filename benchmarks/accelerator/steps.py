"""Training steps: their speed, and their memory by the compiler and by the device."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.errors import JaxRuntimeError

from benchmarks.accelerator.timing import timed
from benchmarks.accelerator.trainer import BUCKETS, Trainer, memory_of, run_of
from bss.training.execution import Execution
from bss.training.hardware import target_of

Row = dict[str, Any]


def machine() -> Iterator[Row]:
    """Yield the device's peak: bfloat16 products of random matrices, and copies."""
    device = jax.local_devices()[0]
    side = 256 if device.platform == "cpu" else 8192
    x = jax.random.normal(jax.random.key(0), (side, side))
    target = target_of(device.device_kind)
    yield {
        "platform": device.platform,
        "matmul_flops": _rate(lambda x: x @ x, x.astype(jnp.bfloat16), 2 * side**3),
        "peak_flops": target and target.peak_flops,
        "bandwidth": _rate(lambda x: x + 1, x, 2 * x.nbytes),
        "limit_bytes": memory_of(device).get("bytes_limit"),
    }


def _rate(function: Callable[[jax.Array], jax.Array], x: jax.Array, work: float) -> float:
    """Return a function's work per second."""
    call = jax.jit(function)
    last = []

    def dispatch() -> None:
        last[:] = [call(x)]

    return work / timed(dispatch, lambda: jax.block_until_ready(last)).seconds


def step(
    *, model: str, bucket: int, seq_len: int, attention: str, remat: bool = False, **layers: Any
) -> Iterator[Row]:
    """Yield a row for a step of one micro-batch and of two; only compiled if it cannot run.

    `layers` are `unroll` and `remat_policy` of its execution.
    """
    run = run_of(model, seq_len, remat=remat)
    device = jax.local_devices()[0]
    trainer = Trainer(run, bucket, Execution(attention=attention, **layers))
    before = memory_of(device).get("peak_bytes_in_use", 0)  # to choose kernels takes memory too
    uses = trainer.program.memory_analysis()
    kept = uses.argument_size_in_bytes + uses.output_size_in_bytes - uses.alias_size_in_bytes
    row = {
        "state_bytes": trainer.state_bytes,
        "temp_bytes": uses.temp_size_in_bytes,
        "peak_bytes": kept + uses.temp_size_in_bytes + uses.generated_code_size_in_bytes,
        "compile_seconds": round(trainer.compile_seconds, 2),
        "model_flops": run.model.training_flops_per_token(seq_len) * bucket * seq_len,
    }
    for buckets in (1, BUCKETS):
        try:
            trainer.start()
            took = timed(lambda n=buckets: trainer.step(n), trainer.wait)
        except JaxRuntimeError as error:
            yield {"buckets": buckets, **row, "error": str(error).splitlines()[0]}
            return
        count = buckets * bucket * seq_len
        target = target_of(device.device_kind)
        peak = memory_of(device).get("peak_bytes_in_use", 0)
        yield {
            "buckets": buckets,
            "tokens_per_second": count / took.seconds,
            "seconds_per_step": took.seconds,
            "spread": took.spread,
            "mfu": target and buckets * row["model_flops"] / target.peak_flops / took.seconds,
            "loss": float(trainer.metrics.loss),
            **row,
            "device_peak_bytes": peak if peak > before else None,
            "device_peak_before_bytes": before,
        }
