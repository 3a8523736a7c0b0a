"""Machines that are asked for by name, "v5e:2x4": devices to compile for, whether present or not.

XLA compiles for TPUs by libtpu and for NVIDIA GPUs by JAX's CUDA plugin, on any CPU. GPUs are
described by files in `gpus/`, facts of the devices in XLA's own format. Nothing is looked up on a
network, and no device is opened.
"""

import contextlib
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss import install
from bss.errors import InputError
from bss.machines.slots import memory_fraction
from bss.machines.targets import TARGETS, Target

_GPUS = Path(__file__).parent / "gpus"
_OF_HOST = 8
_TPUS = {"v5e": "2x4", "v5p": "4x4x4", "v6e": "2x4", "tpu7x": "2x2x1"}
_LIBTPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # as nothing is opened, several may compile at once
    "TPU_SKIP_MDS_QUERY": "1",  # which asks the cloud's metadata server what machine this is
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}


@dataclass(frozen=True)
class Machine:
    """Devices of one kind.

    Attributes:
        name: by which they were asked for.
        target: what one of them is; None for forced devices of this CPU.
        devices: as a mesh takes them.
        pool: bytes of each that JAX gives its programs; None where that is not known.
    """

    name: str
    target: Target | None
    devices: list[Any]
    pool: float | None = None


def machine(name: str) -> Machine:
    """The machine of a name: "v5e:2x4", "h100:8", "cpu:8"; "h100:64" is of hosts of eight.

    To be called before JAX has started: it then opens this CPU, as many devices, and nothing else.

    Raises:
        InputError: no such machine, or what compiles for it is not installed.
    """
    kind, _, shape = name.partition(":")
    import jax

    jax.config.update("jax_platforms", "cpu")
    if kind == "cpu" and re.fullmatch(r"[1-9]\d*", shape):
        return Machine(name, None, _cpus(name, int(shape)))
    target = next((t for t in TARGETS if t.name == kind), None)
    pool = target and target.pool(memory_fraction())
    if target and kind in _TPUS and re.fullmatch(r"\d+(x\d+)+", shape):
        return Machine(name, target, _tpus(name, shape), pool)
    if target and (_GPUS / f"{kind}.txtpb").is_file() and (hosts := _hosts(shape)):
        return Machine(name, target, _gpus(name, kind, hosts), pool)
    raise InputError(f"--on {name}: no machine that is known; expected {known()}")


def known() -> str:
    """Which machines can be asked for, in words."""
    tpus = ", ".join(f"{kind}:{shape}" for kind, shape in _TPUS.items())
    gpus = ", ".join(f"{file.stem}:1 to :8" for file in sorted(_GPUS.glob("*.txtpb")))
    return f"cpu:N, {gpus} or a multiple of 8, or chips of a TPU as {tpus}, v5e:1x1, v5e:8x8"


def _cpus(name: str, count: int) -> list[Any]:
    import jax

    with contextlib.suppress(RuntimeError):  # JAX has started, with the devices that it has
        jax.config.update("jax_num_cpu_devices", count)
    devices = jax.local_devices(backend="cpu")
    if len(devices) < count:
        raise InputError(f"--on {name}: this process has started with {len(devices)} devices")
    return devices[:count]


def _tpus(name: str, shape: str) -> list[Any]:
    _require("libtpu", name, "aot-tpu")
    os.environ.update(_LIBTPU)
    one = {"chips_per_host_bounds": (1, 1, 1)} if set(shape.split("x")) == {"1"} else {}
    return _described(name, platform="tpu", topology_name=name, **one)


def _hosts(count: str) -> tuple[int, int] | None:
    """Hosts and GPUs of each, of a number of GPUs; None of a number that makes no whole hosts."""
    number = int(count) if re.fullmatch(r"[1-9]\d{0,4}", count) else 0
    if number <= _OF_HOST:
        return (1, number) if number else None
    return None if number % _OF_HOST else (number // _OF_HOST, _OF_HOST)


def _gpus(name: str, kind: str, hosts: tuple[int, int]) -> list[Any]:
    _require("jax_plugins.xla_cuda13", name, "aot-gpu")
    text = (_GPUS / f"{kind}.txtpb").read_text()
    topology = "1x{}x{}".format(*hosts)
    return _described(
        name, platform="cuda", topology_name=kind, topology=topology, target_config=text
    )


def _require(package: str, name: str, extra: str) -> None:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package around it
        spec = None
    if spec is None:
        raise InputError(f"--on {name}: what compiles for it is missing; {install(extra)}")


def _described(name: str, **description: Any) -> list[Any]:
    from jax.errors import JaxRuntimeError
    from jax.experimental import topologies

    try:
        return list(topologies.get_topology_desc(**description).devices)
    except (JaxRuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--on {name}: {reason}; expected {known()}") from None
