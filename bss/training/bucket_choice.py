"""The micro-batch sizes of a run that names none: by the caches of a CPU, up to 32 elsewhere.

On a CPU large micro-batches are slow, because what a layer keeps for its backward pass leaves the
caches. Small ones are slow too, because each micro-batch reads and writes the sums of all
gradients. The choice rounds differently from another one. So a run keeps the sizes of its first
start, on any machine.
"""

import functools
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bss.schedules.buckets import LARGEST
from bss.training.distributed import gather_text, is_primary
from bss.training.execution import Execution
from bss.training.hardware import cores
from bss.training.run_config import RunConfig

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LARGEST_CACHE = 20_000_000
"""Bytes that count at most as the cache of one core: a virtual machine names the cache of a whole
socket, of which it has a part."""
KEPT_PER_PARAMETER = 10
"""Bytes that a micro-batch keeps for each byte of parameters. With fewer the sums of gradients take
more than a few percent of its time (benchmarks/README.md)."""


def choose_buckets(
    execution: Execution, run: RunConfig, mesh: Mesh, before: Mapping[str, Any], runs: int = 1
) -> Execution:
    """Return the execution with the micro-batch sizes of a run's steps and of its evaluation.

    Args:
        execution: what it names is kept.
        run: the run. One that measures its gradient noise scale has up to 32 sequences everywhere,
            because the estimate depends on the number of micro-batches.
        mesh: the devices.
        before: the record of the run's last start, whose sizes are used again; empty for none.
        runs: number of runs in the program.
    """
    if execution.buckets and execution.evaluation_bucket:
        return execution
    chosen = _choose(run, mesh, before, runs) if is_primary() else ()
    sizes, most = json.loads(gather_text(json.dumps(chosen))[0])
    return replace(
        execution,
        buckets=execution.buckets or tuple(sizes),
        evaluation_bucket=execution.evaluation_bucket or most,
    )


def _choose(
    run: RunConfig, mesh: Mesh, before: Mapping[str, Any], runs: int
) -> tuple[list[int], int]:
    """Return the allowed micro-batch sizes, [] for every size up to 32, and that of evaluation."""
    kept = [size for size in before.get("buckets", ()) if size % mesh.size == 0]
    if before and bool(kept) == bool(before.get("buckets")):
        return kept, before.get("evaluation_bucket", LARGEST)
    most = _largest_here(run, mesh, runs)
    if most == LARGEST or run.noise_scale.half_life:
        return [], most
    return [*range(mesh.size, most * mesh.size + 1, mesh.size)], most


def largest_bucket(run: RunConfig, runs: int, cache: float | None, workers: int) -> int:
    """Return the most sequences of a micro-batch on one CPU device (derived here).

    Args:
        run: the run.
        runs: number of runs in the program.
        cache: bytes of one core's cache; None if unknown.
        workers: cores of the device.
    """
    kept = run.model.kept_by_layer(run.data.seq_len)
    if not kept or not cache:
        return LARGEST
    enough = KEPT_PER_PARAMETER * 4 * run.model.counts().total / sum(kept)
    fitting = min(enough, cache / (max(kept) * runs))
    return min(max(round(fitting), 1) * workers, LARGEST)


def _largest_here(run: RunConfig, mesh: Mesh, runs: int) -> int:
    """Return the most sequences of a micro-batch on each of these devices."""
    if mesh.devices.flat[0].platform != "cpu":
        return LARGEST
    cache = core_cache()
    if cache is None:
        warnings.warn(
            f"execution.buckets: the cache of this CPU is unknown ({CACHES} has no size), so "
            f"micro-batches have up to {LARGEST} sequences; name smaller ones if steps are slow",
            RuntimeWarning,
            stacklevel=2,
        )
    return largest_bucket(run, runs, cache, max(cores() // len(mesh.local_devices), 1))


@functools.cache
def core_cache(caches: Path = CACHES) -> float | None:
    """Return the bytes of the largest cache, for each core that shares it; None if unknown."""
    found = []
    for index in caches.glob("index*"):
        try:
            size = (index / "size").read_text().strip()
            sharing = _count((index / "shared_cpu_list").read_text().strip())
            found.append(int(size.removesuffix("K")) * 1024 / sharing)
        except (OSError, ValueError, ZeroDivisionError):
            continue
    largest = max(found, default=0.0)
    return min(largest, LARGEST_CACHE) or None


def _count(listed: str) -> int:
    """Return the number of cores in a list like "0-3,8"."""
    ends = [part.split("-") for part in listed.split(",") if part]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)
