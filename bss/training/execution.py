"""Execution: where and how a run is executed. Results do not depend on it, up to rounding."""

import platform
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import jax
from jax.sharding import Mesh

from bss.errors import InputError, check_least
from bss.models.base import (
    DEFAULT_LAYERS,
    LOGITS_AT_ONCE,
    Head,
    Layers,
    LogitsDtype,
    RematPolicy,
)
from bss.provenance import commit
from bss.schedules.buckets import BucketSizes
from bss.schedules.plan import Plan
from bss.training.hardware import cores, memory_fraction, target_of
from bss.training.run_config import RunConfig
from bss.training.sharding import on_gpus
from bss.values import read_fields, to_dict

_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")  # a Path keeps one slash

COMPILED = "compiled"
"""The compilation cache in a directory of runs."""
NOT_COMPUTED = ("commit", "started", "registration", "mates")
"""Keys of execution.json on which no number depends."""


@dataclass(frozen=True)
class SharedExecution:
    """Execution settings that all runs of a sweep share.

    Attributes:
        runs: directory of run directories.
        buckets: allowed micro-batch sizes in sequences. Empty: on CPUs the sizes that caches and
            cores allow (`bss.training.bucket_choice`), elsewhere every size up to 32. A run keeps
            the sizes of its first start.
        devices: devices of each process that share a micro-batch; 0 means all.
        fsdp: number of devices that shard the weights, the optimizer's state and the averages, a
            divisor of `devices`; 1: replicated.
        checkpoint_seconds: seconds between checkpoints; longer if a save delays the steps by more
            than 5% of it. 0 saves after every step.
        step_limit: maximum of seconds that a step or an evaluation takes; then the process exits,
            because a device hangs. 0: no limit.
        steps_per_dispatch: maximum of steps per dispatch, at most 64; 0: several on a CPU, about as
            many as take 4 s, and one elsewhere. With several devices it is always one. It does not
            change a run's bits on CPUs; elsewhere it is part of the record in execution.json.
        evaluation_bucket: sequences per device that are evaluated at once; 0: as many as the
            largest bucket that `buckets` would allow if it were empty.
        repeatable: on GPUs use only deterministic operations, of which some are slower.
        attention: name of the attention kernel: "cudnn", "splash", "reference" or
            `package.module:ATTRIBUTE`. "auto" takes the first that supports the device, the model
            and its sequences.
        unroll: layers of a stacked model per iteration of the loop over them. 0: all layers on GPUs
            of known memory, because a loop copies its results; 1 elsewhere and with `fsdp`.
        remat_policy: results that a model with `remat` keeps for the backward pass: "nothing" (only
            the inputs of layers), "attention", all matrix "products", or "all". "auto" keeps as
            much as fits on GPUs and TPUs of known memory, and nothing elsewhere.
        logits_dtype: type of the logits in memory, "float32" or "bfloat16", which halves their
            traffic; their sums are float32. For models of this package, not for vmapped runs.
        log_every: number N: every N-th step is logged, to steps.csv in the run directory and to
            the trackers; 0: none.
        trackers: loggers of every run's curve: "tensorboard", "wandb", or a custom one as
            `package.module:ATTRIBUTE`.
    """

    runs: str = "runs"
    buckets: tuple[int, ...] = ()
    devices: int = 0
    fsdp: int = 1
    checkpoint_seconds: float = 60.0
    step_limit: float = 1800.0
    steps_per_dispatch: int = 0
    evaluation_bucket: int = 0
    repeatable: bool = False
    attention: str = "auto"
    unroll: int = 0
    remat_policy: Literal[RematPolicy, "auto"] = "auto"
    logits_dtype: LogitsDtype = "float32"
    log_every: int = 0
    trackers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Execution(SharedExecution):
    """Execution settings of one run.

    Attributes:
        data: directory of the token shards.
        forks: token counts at which a checkpoint is kept for forked runs.
        compilation_cache: directory of JAX's persistent compilation cache. Empty: `compiled` in
            `runs` for `bss train` and `bss sweep`, else none; "none" for none.
        registration: SHA-256 of preregistered predictions about the run; empty for none.
    """

    data: str = "data/stdlib-bytes"
    forks: tuple[int, ...] = ()
    compilation_cache: str = ""
    registration: str = ""

    def __post_init__(self) -> None:
        read_fields(self, "execution.")
        zero = (
            *("devices", "checkpoint_seconds", "step_limit", "steps_per_dispatch", "unroll"),
            *("evaluation_bucket", "log_every"),
        )
        least = dict.fromkeys(zero, 0) | {"fsdp": 1}
        check_least("execution", self, **least)
        for name in ("buckets", "forks"):
            if any(value < 1 for value in getattr(self, name)):
                value = ", ".join(map(str, getattr(self, name)))
                raise InputError(f"execution.{name} is {value}; expected 1 or more")
        if _URL.match(self.runs):
            raise InputError(
                f"runs is {self.runs}, which is not a directory; mount a volume (NFS, Lustre, "
                "Filestore, EFS) that many machines write, with locks between them, appends and "
                "renames, and name its path"
            )

    def bucket_sizes(self, run: RunConfig) -> BucketSizes:
        """Return the micro-batch sizes that a run's steps may use."""
        return BucketSizes(self.buckets, run.noise_scale.split)

    def plan(self, run: RunConfig) -> Plan:
        """Return the run's plan.

        Raises:
            InputError: If there is none, or no micro-batch size divides a batch.
        """
        plan = run.plan()
        self.bucket_sizes(run).max_microbatches(plan)
        return plan

    def attention_of(self, run: RunConfig, mesh: Mesh) -> str:
        """Return the name of the attention kernel of a run's programs.

        Raises:
            InputError: If the requested kernel cannot be used.
        """
        seq_lens = {run.data.seq_len, run.evaluation.seq_len or run.data.seq_len}
        return run.model.choose_attention(self.attention, mesh.devices.flat[0], seq_lens)

    def layers_of(self, run: RunConfig, mesh: Mesh) -> Layers:
        """Return how the layers of a run's model are computed.

        On devices of known memory, layers may keep a part of what the state and two gradients
        leave. With FSDP one layer at a time is whole, so the loop is kept.
        """
        if not run.model.takes_layers:
            if self.logits_dtype != "float32":
                raise InputError(
                    f"execution.logits_dtype is {self.logits_dtype}; {run.model.label} computes "
                    "its own logits: write float32"
                )
            return DEFAULT_LAYERS
        target = target_of(mesh.devices.flat[0].device_kind) if self.fsdp == 1 else None
        on_gpu = on_gpus(mesh)
        unroll = self.unroll or (0 if target and on_gpu else 1)
        pool = target.pool(memory_fraction()) if target else 0.0
        large = on_gpu and pool >= _LARGE_POOL
        head = Head(self.logits_dtype, _LARGE_CHUNK if large else 0)
        if target is None or self.remat_policy != "auto":
            policy = "nothing" if self.remat_policy == "auto" else self.remat_policy
            return Layers(unroll, policy, head=head)
        per_parameter = _BYTES_PER_PARAMETER + 4 * len(run.averages)
        left = pool - per_parameter * run.model.counts().total
        return Layers(unroll, "all", round(left / (2 if on_gpu else _TPU_PARTS)), head)


_TPU_PARTS = 6
"""Parts of a TPU's memory of which layers may keep one, as estimated. A program for a v5e keeps 3.6
times the estimate (85M in micro-batches of 8 x 1024, compiled with everything and nothing kept)."""
_LARGE_POOL = 60e9
_LARGE_CHUNK = 4 * LOGITS_AT_ONCE
"""Logits of a chunk on a GPU with at least _LARGE_POOL bytes: 2 GiB. The gradient of the head is
read and written once per chunk."""
_BYTES_PER_PARAMETER = 20
"""Parameter, two moments, the gradients so far, and the gradients of a micro-batch."""


def compiler_options(execution: Execution, mesh: Mesh) -> dict[str, Any]:
    """Return the compiler options of a run's programs."""
    if execution.repeatable and on_gpus(mesh):
        return {"xla_gpu_deterministic_ops": True}
    return {}


def use_compilation_cache(execution: Execution) -> None:
    """Use the persistent compilation cache if the execution names a directory."""
    if execution.compilation_cache not in ("", "none"):
        jax.config.update("jax_compilation_cache_dir", execution.compilation_cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def describe(
    mesh: Mesh,
    execution: Execution,
    attention: str = "reference",
    vmapped_runs: int = 1,
    layers: Layers = DEFAULT_LAYERS,
) -> dict[str, Any]:
    """Return a record for execution.json.

    Two executions are bit-identical if their records are equal except for NOT_COMPUTED.

    Args:
        mesh: the devices.
        execution: the settings.
        attention: name of the chosen attention kernel.
        vmapped_runs: number of runs in the program.
        layers: the chosen computation of layers.
    """
    device = jax.local_devices()[0]
    kept = to_dict(layers)
    head = kept.pop("head")
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": mesh.size,
        "processes": jax.process_count(),
        "fsdp": execution.fsdp,
        "vmap_runs": vmapped_runs,
        "buckets": list(execution.buckets),
        "evaluation_bucket": execution.evaluation_bucket,
        "repeatable": execution.repeatable,
        "attention": attention,
        "cores": cores(),
        "machine": platform.machine(),
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "registration": execution.registration,
        "layers": kept,
        "head": head,
        "python": platform.python_version(),
        "versions": {p: version(p) for p in ("jax", "jaxlib", "flax", "optax", "numpy")},
    }
