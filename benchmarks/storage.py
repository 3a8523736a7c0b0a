"""How fast data are read, and states saved and restored.

    python -m benchmarks.storage

A batch of token shards onto the device; a checkpoint of a model of 4.7M parameters, until it is on
disk, and back. How fast text is encoded, `python -m benchmarks.encoding` says.
"""

import sys
from pathlib import Path
from typing import Any

from benchmarks.command import works
from benchmarks.race import Turn, Variant
from benchmarks.text import run_on_sources, scratch
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig


def batches(model: str, seq_len: int, batch: int) -> Turn:
    """A turn reads so many batches, one behind the other."""
    from bss.training.devices.mesh import make_mesh
    from bss.training.source import open_source

    schedule = ScheduleConfig(seq_len * batch, BatchSchedule.constant(batch))
    run, execution = run_on_sources(scratch(), model, seq_len, schedule)
    source, position = open_source(run, Path(execution.data), make_mesh(1)), 0

    def turn(count: int) -> None:
        nonlocal position
        for _ in range(count):
            source.batch(position, batch, 1, batch).block_until_ready()
            position += batch

    return turn


def checkpoints(model: str, restored: bool) -> Turn:
    """A turn saves so many, each to the disk; or restores one so many times."""
    import jax

    from bss.models.sizes import named
    from bss.training.config import RunConfig
    from bss.training.devices.mesh import make_mesh
    from bss.training.record.checkpoint import Checkpoints
    from bss.training.step import init_state, state_shapes

    run, mesh = RunConfig(named(model)), make_mesh(1)
    shapes, state = state_shapes(run, mesh), jax.jit(lambda: init_state(run))()
    kept, tokens = Checkpoints(scratch()), 0

    def save(count: int) -> dict[str, float]:
        nonlocal tokens
        for _ in range(count):
            tokens += 1
            kept.save(tokens, state, {}, fork=False)
            kept.wait()
        return {"gb": sum(x.nbytes for x in jax.tree.leaves(state)) / 1e9}

    def restore(count: int) -> None:
        for _ in range(count):
            jax.block_until_ready(kept.restore(tokens, shapes)[0])

    save(1)
    return restore if restored else save


def _variants(options: Any) -> list[Variant]:
    read = {"model": options.model, "seq_len": 128, "batch": 32}
    state = {"model": options.model}
    return [
        Variant("read 32 × 128 tokens", "benchmarks.storage:batches", read),
        Variant("save", "benchmarks.storage:checkpoints", {**state, "restored": False}),
        Variant("restore", "benchmarks.storage:checkpoints", {**state, "restored": True}),
    ]


BENCHMARK = works(
    "storage",
    __doc__ or "",
    _variants,
    seconds=20.0,
    add=lambda parser: parser.add_argument("--model", default="mini", help="whose state is saved"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
