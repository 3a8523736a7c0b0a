"""Devices to compile for by name, "v5e:2x4" or "h100:8", present or not.

XLA compiles for TPUs by libtpu and for NVIDIA GPUs by JAX's CUDA plugin, on any CPU. `gpus/` has
descriptions of GPUs in XLA's format. No network is used and no device is opened.
"""

import contextlib
import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.installation import install

GPUS = Path(__file__).parent / "gpus"
KNOWN = (
    "cpu:N, h100:N or h200:N (1 to 8, or hosts of 8), v5e:2x4 or v5litepod-8, "
    "v5p:4x4x4 or v5p-128, v6e:2x4 or v6e-8, tpu7x:2x2x1"
)
_TPUS = ("v5e", "v5p", "v6e", "tpu7x")
_FLAT = {"v5litepod": "v5e", "v6e": "v6e"}
"""Accelerator types of Google Cloud that count chips, of which a slice is a rectangle."""
_PLANES = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {8: "2x2x1", 16: "2x2x2", 32: "2x2x4", 64: "2x4x4", 128: "4x4x4", 256: "4x4x8",
          512: "4x8x8", 1024: "8x8x8", 1536: "8x8x12", 2048: "8x8x16", 4096: "8x16x16"}  # fmt: skip
"""Default topologies by the number in `v5p-N`, which counts cores, two of each chip."""
_LIBTPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # nothing is opened, so several processes may compile
    "TPU_SKIP_MDS_QUERY": "1",  # of the cloud's metadata server
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}


def machine_named(name: str) -> str:
    """Return "v5e:2x4" for Google Cloud's "v5litepod-8"; any other name is returned as it is.

    Raises:
        InputError: If slices of this size do not exist.

    Examples:
        >>> machine_named("v5p-64"), machine_named("v5litepod-8"), machine_named("h100:8")
        ('v5p:2x4x4', 'v5e:2x4', 'h100:8')
    """
    kind, dash, count = name.rpartition("-")
    if not dash or (kind != "v5p" and kind not in _FLAT):
        return name
    sizes = _CUBES if kind == "v5p" else _PLANES
    if not count.isdecimal() or int(count) not in sizes:
        known = ", ".join(f"{kind}-{size}" for size in sizes)
        raise InputError(f"--on {name}: no slice of this size; expected one of {known}")
    return f"{_FLAT.get(kind, kind)}:{sizes[int(count)]}"


def devices_of(name: str) -> list[Any]:
    """Return the devices of a machine as `jax.sharding.Mesh` takes them.

    Call it before JAX has started: JAX then uses the CPU only, with this number of devices.

    Raises:
        InputError: If the machine is unknown or its compiler is not installed.
    """
    import jax

    jax.config.update("jax_platforms", "cpu")
    kind, _, shape = name.partition(":")
    if kind in _TPUS and re.fullmatch(r"\d+(x\d+)+", shape):
        os.environ.update(_LIBTPU)
        one_chip = {"chips_per_host_bounds": (1, 1, 1)} if {*shape.split("x")} == {"1"} else {}
        tpu = {"platform": "tpu", "topology_name": name, **one_chip}
        return _described(name, "libtpu", "aot-tpu", tpu)
    count = int(shape) if re.fullmatch(r"[1-9]\d{0,4}", shape) else 0
    if kind == "cpu" and count:
        with contextlib.suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", count)
        if len(devices := jax.local_devices(backend="cpu")) >= count:
            return devices[:count]
        raise InputError(f"--on {name}: this process has {len(devices)} devices; ask for no more")
    description = GPUS / f"{kind}.txtpb"
    if count and description.is_file() and (count <= 8 or count % 8 == 0):
        topology = f"1x{max(count // 8, 1)}x{min(count, 8)}"
        gpu = {"platform": "cuda", "topology_name": kind, "topology": topology}
        text = description.read_text()
        return _described(name, "jax_plugins.xla_cuda13", "aot-gpu", gpu | {"target_config": text})
    raise InputError(f"--on {name}: unknown machine; expected {KNOWN}")


def _described(name: str, package: str, extra: str, description: dict[str, Any]) -> list[Any]:
    """Return the devices of a topology, or raise if `package` is missing."""
    with contextlib.suppress(ModuleNotFoundError):  # of the package around it
        if importlib.util.find_spec(package):
            from jax.errors import JaxRuntimeError
            from jax.experimental import topologies

            try:
                return list(topologies.get_topology_desc(**description).devices)
            except (JaxRuntimeError, NotImplementedError) as error:
                raise InputError(f"--on {name}: {str(error).splitlines()[0]}") from None
    raise InputError(f"--on {name}: its compiler is missing; {install(extra)}")
