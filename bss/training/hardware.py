"""The devices of this machine: device groups for workers, memory, peak FLOP/s.

JAX is not imported with this module: devices are counted without starting JAX, which would take
them. The variables for TPUs are those by which JAX's developers divide a host:
https://gist.github.com/skye/f82ba45d2445bb19d53545538754f9a3

Sources of `TARGETS`: NVIDIA's data sheets of A100, H100, H200 and HGX B200; Google Cloud's pages of
TPU v4, v5e, v5p, v6e and TPU7x. JAX shows each half of a TPU7x chip, and a whole B200, as one
device.
"""

import contextlib
import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bss.errors import InputError

GB = 1e9
GiB = 2.0**30
_CHIP_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
_TPU_PORT = 8476
_DEVICES = ("nvidia*", "accel*", "vfio", "kfd", "dxg")
_COMPILERS = ("libtpu", "jax_plugins")
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_FRACTION = "0.92"


@dataclass(frozen=True)
class Slot:
    """The device group of one worker.

    Attributes:
        name: name of its log.
        core: index of the core to pin the worker to, among the cores it may use; None: no pinning.
        environment: variables that show its process only its own devices.
        node: the machine, if there are several.
    """

    name: str
    core: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    node: str = ""


def local_slots(
    workers: int = 0, devices: int = 0, *, pin: bool = True, least: int = 1
) -> list[Slot]:
    """Return the slots of this machine: GPUs, else TPU chips, else cores.

    Args:
        workers: number of slots; 0 for as many as possible.
        devices: accelerators per slot; 0 divides them among `workers`, or is `least`.
        pin: pin each slot to a core on machines without an accelerator.
        least: minimum of accelerators per run.

    Raises:
        InputError: If the machine has fewer accelerators.
    """
    kind, present, environment = _accelerators()
    if not present:
        known = hasattr(os, "sched_setaffinity")
        return [Slot(str(i), i if pin and known else None) for i in range(workers or cores())]
    each = devices or (max(len(present) // workers, 1) if workers else least)
    if each * max(workers, 1) > len(present):
        wanted = f"{workers} workers with {each} devices each" if workers else f"devices is {each}"
        raise InputError(
            f"setup.engine: {wanted}; this machine has {len(present)} {kind}: ask for no more"
        )
    shares = [present[i : i + each] for i in range(0, len(present) - each + 1, each)]
    return [Slot(str(i), environment=environment(s)) for i, s in enumerate(shares)][
        : workers or None
    ]


def cores() -> int:
    """Return the number of cores of this process; XLA on CPUs rounds differently with it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory(limits: Path = Path("/sys/fs/cgroup/memory.max")) -> float:
    """Return the bytes of memory that this process may use: the machine's, or its container's."""
    found = [math.inf]
    with contextlib.suppress(ValueError, OSError, AttributeError):  # not a name of this system
        found.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    with contextlib.suppress(ValueError, OSError):  # no container; "max"
        found.append(float(limits.read_text()))
    return min(found)


def uses_cpu() -> bool:
    """Return True if JAX_PLATFORMS selects the CPU."""
    return os.environ.get("JAX_PLATFORMS", "").partition(",")[0] == "cpu"


def memory_environment() -> dict[str, str]:
    """Return variables that let JAX allocate 92% of a GPU's memory, unless one is set.

    Its default is 75%; CUDA needs the rest.
    """
    return {} if any(map(os.environ.get, _FRACTIONS)) else {_FRACTIONS[0]: _FRACTION}


def memory_fraction() -> float:
    """Return the fraction of a GPU's memory that JAX allocates with `memory_environment`.

    Raises:
        InputError: If a variable is not a fraction.
    """
    given = ((name, text) for name in _FRACTIONS if (text := os.environ.get(name)))
    name, text = next(given, (_FRACTIONS[0], _FRACTION))
    with contextlib.suppress(ValueError):
        if 0 < (fraction := float(text)) <= 1:
            return fraction
    raise InputError(f"{name} is {text!r}; expected a part of 1, as {_FRACTION}")


def _accelerators() -> tuple[str, list[str], Callable[[Sequence[str]], Mapping[str, str]]]:
    """Return the kind, the names of the accelerators, and the function to a slot's environment."""
    if not uses_cpu():
        if importlib.util.find_spec("jax_plugins") and (present := gpus()):
            return "GPUs", present, lambda share: {"CUDA_VISIBLE_DEVICES": ",".join(share)}
        if importlib.util.find_spec("libtpu") and (present := tpu_chips()):
            return "TPU chips", present, lambda share: _tpu_environment(share, present)
    return "", [], lambda share: {}


def has_accelerators() -> bool:
    """Return True if this process may use a GPU or a TPU."""
    return bool(_accelerators()[1])


def gpus() -> list[str]:
    """Return the NVIDIA GPUs of this process, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    if not (command := shutil.which("nvidia-smi")):
        return []
    listed = subprocess.run([command, "-L"], capture_output=True, text=True, check=False).stdout
    return [str(i) for i in range(sum(line.startswith("GPU ") for line in listed.splitlines()))]


def tpu_chips(devices: Path = Path("/dev")) -> list[str]:
    """Return the TPU chips of this process, as TPU_VISIBLE_CHIPS names them."""
    if visible := os.environ.get("TPU_VISIBLE_CHIPS"):
        return visible.split(",")
    files = [*devices.glob("accel[0-9]*")] or [*devices.glob("vfio/[0-9]*")]
    return [str(i) for i in range(len(files))]


def _tpu_environment(share: Sequence[str], chips: Sequence[str]) -> Mapping[str, str]:
    if len(share) == len(chips):
        return {}
    if len(share) not in _CHIP_BOUNDS:
        expected = ", ".join(map(str, _CHIP_BOUNDS))
        raise InputError(f"setup.engine.devices is {len(share)}; of TPU chips choose {expected}")
    port = str(_TPU_PORT + chips.index(share[0]))
    return {
        "TPU_VISIBLE_CHIPS": ",".join(share),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": _CHIP_BOUNDS[len(share)],
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "TPU_MESH_CONTROLLER_ADDRESS": f"localhost:{port}",
        "TPU_MESH_CONTROLLER_PORT": port,
    }


def look_for_present(devices: Path = Path("/dev")) -> None:
    """Select the CPU if an accelerator's plugin is installed without its device.

    JAX would look for the device and print many lines. Sets `memory_environment` too. Call it
    before JAX starts; JAX_PLATFORMS is respected.
    """
    os.environ.update(memory_environment())
    if os.environ.get("JAX_PLATFORMS") or not any(map(importlib.util.find_spec, _COMPILERS)):
        return
    if sys.platform != "linux" or any(any(devices.glob(name)) for name in _DEVICES):
        return
    os.environ["JAX_PLATFORMS"] = "cpu"  # for workers too
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", "cpu")


@dataclass(frozen=True)
class Target:
    """A kind of device.

    Attributes:
        name: as in `bss compile --on`, e.g. "v5e".
        kinds: `device_kind` in JAX.
        memory: bytes; of an H100 as CUDA reports them.
        peak_flops: dense bf16 FLOP/s.
    """

    name: str
    kinds: tuple[str, ...]
    memory: float
    peak_flops: float

    def pool(self, fraction: float) -> float:
        """Return the bytes that JAX gives programs: all of a TPU, a fraction of a GPU."""
        return fraction * self.memory if self.kinds[0].startswith("NVIDIA") else self.memory


TARGETS = (
    Target("v4", ("TPU v4",), 32 * GiB, 275e12),
    Target("v5e", ("TPU v5 lite", "TPU v5e"), 16 * GiB, 197e12),
    Target("v5p", ("TPU v5", "TPU v5p"), 95 * GiB, 459e12),
    Target("v6e", ("TPU v6 lite", "TPU v6e"), 32 * GiB, 918e12),
    Target("tpu7x", ("TPU7x",), 96 * GiB, 1153.5e12),
    Target("a100", ("NVIDIA A100-SXM4-80GB",), 80 * GB, 312e12),
    Target("a100-40", ("NVIDIA A100-SXM4-40GB",), 40 * GB, 312e12),
    Target("a100-pcie", ("NVIDIA A100 80GB PCIe",), 80 * GB, 312e12),
    Target("h100", ("NVIDIA H100 80GB HBM3",), 85.019e9, 989.5e12),
    Target("h100-pcie", ("NVIDIA H100 PCIe",), 80 * GB, 756e12),
    Target("h200", ("NVIDIA H200",), 141 * GB, 989.5e12),
    Target("b200", ("NVIDIA B200",), 180 * GB, 2250e12),
)


def target_of(device_kind: str) -> Target | None:
    """Return the target with this `device_kind`, or None.

    >>> target_of("TPU v5").name, target_of("TPU v5 lite").name, target_of("cpu")
    ('v5p', 'v5e', None)
    """
    return next((target for target in TARGETS if device_kind in target.kinds), None)


def target_named(name: str) -> Target | None:
    """Return the target of a machine's kind, "h100", or None."""
    return next((target for target in TARGETS if target.name == name), None)


def peak_flops() -> float | None:
    """Return the peak FLOP/s of one device; None for a CPU or one that is not in `TARGETS`."""
    import jax

    target = target_of(jax.local_devices()[0].device_kind)
    return target.peak_flops if target else None
