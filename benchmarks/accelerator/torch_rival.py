"""Steps of the PyTorch rival, compiled, on an accelerator: timed as ours are."""

from collections.abc import Iterator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from benchmarks.accelerator.timing import seconds, timed
from benchmarks.step.shapes import Shape, batches
from benchmarks.step.torch_rival import DEVICE, stepper
from bss.machines.targets import target_of
from bss.models.sizes import named


def device_name() -> str:
    """What CUDA calls the device."""
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"


def rival(*, model: str, bucket: int, seq_len: int) -> Iterator[dict[str, Any]]:
    """Steps of one bucket, all of a step in it."""
    shape, config, last = Shape(model, seq_len, bucket), named(model), []
    dispatch, wait = stepper(config, batches(shape, config.vocab_size))

    def step() -> None:
        last[:] = [dispatch()]

    compile_seconds = seconds(step, wait)
    took = timed(step, wait)
    target, count = target_of(device_name()), shape.tokens
    flops = count * config.training_flops_per_token(seq_len)
    yield {
        "tokens_per_second": count / took.seconds,
        "seconds_per_step": took.seconds,
        "spread": took.spread,
        "mfu": target and flops / target.peak_flops / took.seconds,
        "loss": float(last[0]),
        "compile_seconds": round(compile_seconds, 2),
        "device_peak_bytes": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None,
    }
