"""The devices of this machine: which JAX looks for, and slots, in each of which one worker trains.

Devices are counted without starting JAX, which would take them. A TPU's variables are those by
which JAX's own developers divide a host: https://gist.github.com/skye/f82ba45d2445bb19d53545538754f9a3
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bss.errors import InputError

_CHIP_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
_TPU_PORT = 8476
_DEVICES = ("nvidia*", "accel*", "vfio", "kfd", "dxg")
_COMPILERS = ("libtpu", "jax_plugins")
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_FRACTION = "0.92"


@dataclass(frozen=True)
class Slot:
    """Where one worker trains.

    Attributes:
        name: of its log.
        core: pinned to this one of the cores that it may use, counted from 0; None for no pin.
        environment: variables by which its process sees its own devices only.
        node: the machine, where there are several.
        joining: options by which its process joins those that train the same run.
    """

    name: str
    core: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    node: str = ""
    joining: tuple[str, ...] = ()


def local_slots(
    workers: int = 0, devices: int = 0, *, pin: bool = True, least: int = 1
) -> list[Slot]:
    """The slots of this machine: GPUs, else TPU chips, else cores.

    Args:
        workers: how many slots; 0 for all that there are.
        devices: accelerators in each; 0 shares them among `workers`, or is `least`.
        pin: a core for each slot where there is no accelerator.
        least: accelerators without which a run cannot be.

    Raises:
        InputError: the machine has fewer accelerators than that.
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
    """Cores this process may use; XLA on CPU rounds differently with their number."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def uses_cpu() -> bool:
    """Whether JAX is told to use the CPU, whatever else there is."""
    return os.environ.get("JAX_PLATFORMS", "").partition(",")[0] == "cpu"


def memory_environment() -> dict[str, str]:
    """Variables by which JAX takes 92% of a GPU's memory at once, where none says how much.

    Of itself it takes 75%; CUDA needs the rest.
    """
    return {} if any(map(os.environ.get, _FRACTIONS)) else {_FRACTIONS[0]: _FRACTION}


def memory_fraction() -> float:
    """The part of a GPU's memory that JAX takes in a process with the `memory_environment`.

    Raises:
        InputError: a variable that is no part of 1.
    """
    told = ((name, text) for name in _FRACTIONS if (text := os.environ.get(name)))
    name, text = next(told, (_FRACTIONS[0], _FRACTION))
    with contextlib.suppress(ValueError):
        if 0 < (fraction := float(text)) <= 1:
            return fraction
    raise InputError(f"{name} is {text!r}; expected a part of 1, as {_FRACTION}")


def _accelerators() -> tuple[str, list[str], Callable[[Sequence[str]], Mapping[str, str]]]:
    """What there is, by the names that their variable knows them by, and a share's environment."""
    if not uses_cpu():
        if importlib.util.find_spec("jax_plugins") and (present := gpus()):
            return "GPUs", present, lambda share: {"CUDA_VISIBLE_DEVICES": ",".join(share)}
        if importlib.util.find_spec("libtpu") and (present := tpu_chips()):
            return "TPU chips", present, lambda share: _tpu_environment(share, present)
    return "", [], lambda share: {}


def gpus() -> list[str]:
    """The NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    if not (command := shutil.which("nvidia-smi")):
        return []
    listed = subprocess.run([command, "-L"], capture_output=True, text=True, check=False).stdout
    return [str(i) for i in range(sum(line.startswith("GPU ") for line in listed.splitlines()))]


def tpu_chips(devices: Path = Path("/dev")) -> list[str]:
    """The TPU chips that this process may use, as TPU_VISIBLE_CHIPS names them."""
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
    """Tells JAX to start on this CPU where a compiler is installed and its device is not there.

    JAX would look for it all the same, and tell in many lines that it found none. Of GPUs it takes
    what the `memory_environment` says. To be called before JAX has started; what JAX_PLATFORMS says
    stays.
    """
    os.environ.update(memory_environment())
    if os.environ.get("JAX_PLATFORMS") or not any(map(importlib.util.find_spec, _COMPILERS)):
        return
    if sys.platform != "linux" or any(any(devices.glob(name)) for name in _DEVICES):
        return
    os.environ["JAX_PLATFORMS"] = "cpu"  # for workers too
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", "cpu")
