"""Where and how a run is executed: nothing here changes what is computed, up to rounding."""

import platform
import re
import timeit
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bss.errors import InputError, check_least
from bss.machines.slots import cores, memory_fraction
from bss.machines.targets import target_of
from bss.models.family import ONE_BY_ONE, Keep, Layers
from bss.provenance import commit
from bss.schedules.plan import Plan
from bss.training.config import RunConfig
from bss.training.devices.mesh import on_gpus
from bss.training.running.bucketing import Ladder
from bss.values import to_dict

_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]+:/")  # one slash is left where it was made a path

NOT_COMPUTED = ("commit", "started", "registration", "mates")
"""What execution.json records beside that on which the numbers hang."""


@dataclass(frozen=True)
class SharedExecution:
    """What a run is executed with, alone or among the runs of a sweep.

    Attributes:
        runs: directory of run directories.
        buckets: ladder of bucket sizes in sequences; empty for any up to 32.
        devices: how many devices of each process share a bucket; 0 means all.
        fsdp: how many of them split the weights, the optimizer's state and the averages; a divisor
            of `devices`. 1 where each holds them whole.
        whole_gradient: with `fsdp`, every device adds up a whole float32 gradient, and they meet
            once a step; else each keeps a part, and they meet in every layer and bucket.
        checkpoint_seconds: between checkpoints; longer where a save holds up the steps for more
            than a 20th of that. 0 saves at every step.
        step_limit: seconds that a step, or an evaluation, may take before its devices are taken to
            hang, and the process leaves; 0 for any.
        steps: the most that a run's device takes by itself before the host looks; 0 for as many as
            take seconds on a CPU, and one elsewhere. One of several devices takes one.
        evaluation_bucket: sequences evaluated at once on each device.
        repeatable: on GPUs only operations that give the same bits every time; some are slower.
            CPUs and TPUs have no others.
        attention: the kernel that computes it: "cudnn", "splash", "reference", one of a user's own
            as `package.module:ATTRIBUTE`, or "auto" for the first of these that the device, the
            model and its sequences allow.
        unroll: layers of a stacked model in one turn of the loop over them; 0 for all of them on
            GPUs whose memory is known, where a loop copies what it keeps, and 1 elsewhere and with
            `fsdp`.
        keep: what a model with `remat` keeps of its layers for the backward pass, rather than
            compute it again: "nothing" but their inputs, what "attention" or all "products" gave,
            "all", or "auto": on those GPUs the most that there is room for, else nothing.
        trackers: who is told of every run's curve besides its directory: "tensorboard", "wandb",
            or one of a user's own as `package.module:ATTRIBUTE`.
    """

    runs: str = "runs"
    buckets: tuple[int, ...] = ()
    devices: int = 0
    fsdp: int = 1
    whole_gradient: bool = False
    checkpoint_seconds: float = 60.0
    step_limit: float = 1800.0
    steps: int = 0
    evaluation_bucket: int = 32
    repeatable: bool = False
    attention: str = "auto"
    unroll: int = 0
    keep: Literal[Keep, "auto"] = "auto"
    trackers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Execution(SharedExecution):
    """How to execute a run.

    Attributes:
        data: directory of the token shards.
        forks: token counts at which a checkpoint is kept for branches.
        compilation_cache: directory of JAX's persistent compilation cache; empty for none.
        registration: SHA-256 of the predictions that the run is to be scored by; empty for none.
    """

    data: str = "data/stdlib-bytes"
    forks: tuple[int, ...] = ()
    compilation_cache: str = ""
    registration: str = ""

    def __post_init__(self) -> None:
        zero = ("devices", "checkpoint_seconds", "step_limit", "steps", "unroll")
        least = dict.fromkeys(zero, 0) | {"fsdp": 1, "evaluation_bucket": 1}
        check_least("execution", self, **least)
        if self.keep not in (choices := ("auto", *get_args(Keep))):
            raise InputError(f"execution.keep is {self.keep!r}; expected one of {choices}")
        if _ELSEWHERE.match(self.runs):
            raise InputError(
                f"runs is {self.runs}, which is no directory; mount a volume (NFS, Lustre, "
                "Filestore, EFS) that many machines write, with locks between them, appends and "
                "renames, and name its path"
            )

    def ladder(self, run: RunConfig) -> Ladder:
        """The buckets that a run's steps may be done in."""
        return Ladder(self.buckets, run.noise_scale.split)

    def plan(self, run: RunConfig) -> Plan:
        """The run's plan; InputError where there is none, or a batch is a multiple of no bucket."""
        plan = run.plan()
        self.ladder(run).capacity(plan)
        return plan

    def attention_of(self, run: RunConfig, mesh: Mesh) -> str:
        """The attention kernel of a run's programs; InputError where that asked for cannot be."""
        seq_lens = {run.data.seq_len, run.evaluation.seq_len or run.data.seq_len}
        return run.model.choose_attention(self.attention, mesh.devices.flat[0], seq_lens)

    def layers_of(self, run: RunConfig, mesh: Mesh) -> Layers:
        """How the layers of a run's model are computed.

        What is kept may take half of what is left of a GPU beside the state and two gradients.
        Where weights are split they are whole in one layer at a time, so there is a loop.
        """
        if not hasattr(run.model, "scan_layers"):
            return ONE_BY_ONE
        device = mesh.devices.flat[0]
        target = target_of(device.device_kind) if on_gpus(mesh) and self.fsdp == 1 else None
        unroll = self.unroll or (0 if target else 1)
        if target is None or self.keep != "auto":
            return Layers(unroll, "nothing" if self.keep == "auto" else self.keep)
        held = _BYTES_HELD + 4 * len(run.averages)
        left = target.pool(memory_fraction()) - held * run.model.counts().total
        return Layers(unroll, "all", round(left / 2))


_BYTES_HELD = 20
"""For each parameter: itself, two moments, the gradients so far, and those of a bucket."""


def compiler_options(execution: Execution, mesh: Mesh) -> dict[str, Any]:
    """What the compiler is told besides the program."""
    if execution.repeatable and on_gpus(mesh):
        return {"xla_gpu_deterministic_ops": True}
    return {}


def use_compilation_cache(execution: Execution) -> None:
    """Keeps compiled programs on disk, where the execution names a directory for them."""
    if execution.compilation_cache:
        jax.config.update("jax_compilation_cache_dir", execution.compilation_cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@cache
def peak_flops() -> float | None:
    """Peak FLOP/s of one device; None for an accelerator that is not in the table of targets.

    Of a CPU: the best of eight float32 matrix products of 1024 x 1024, measured here and now.
    """
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        target = target_of(device.device_kind)
        return target and target.peak_flops
    x = jnp.ones((1024, 1024), jnp.float32)
    product = jax.jit(jnp.matmul).lower(x, x).compile()
    seconds = timeit.repeat(lambda: product(x, x).block_until_ready(), repeat=8, number=1)
    return 2 * 1024**3 / min(seconds)


def describe(
    mesh: Mesh,
    execution: Execution,
    attention: str = "reference",
    fleet: int = 1,
    layers: Layers = ONE_BY_ONE,
) -> dict[str, Any]:
    """What execution.json records; `attention` and `layers` were chosen, `fleet` runs share steps.

    Two executions repeat bit-identically if their records are equal but for NOT_COMPUTED.
    """
    device = jax.local_devices()[0]
    registered = {"registration": execution.registration} if execution.registration else {}
    stacked = {} if layers == ONE_BY_ONE else {"layers": to_dict(layers)}
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": mesh.size,
        "processes": jax.process_count(),
        "fsdp": execution.fsdp,
        "whole_gradient": execution.whole_gradient,
        "fleet": fleet,
        "buckets": list(execution.buckets),
        "evaluation_bucket": execution.evaluation_bucket,
        "repeatable": execution.repeatable,
        "attention": attention,
        "cores": cores(),
        "machine": platform.machine(),
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **registered,
        **stacked,
        "python": platform.python_version(),
        "versions": {p: version(p) for p in ("jax", "jaxlib", "flax", "optax", "numpy")},
    }
