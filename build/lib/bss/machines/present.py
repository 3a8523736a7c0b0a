"""Which accelerators JAX looks for when it starts.

With a compiler for absent machines installed, JAX would look for its device where there is none,
and tell in many lines that it found none.
"""

import importlib.util
import os
import sys
from pathlib import Path

_DEVICES = ("nvidia*", "accel*", "vfio", "kfd", "dxg")
_COMPILERS = ("libtpu", "jax_plugins")


def look_for_present(devices: Path = Path("/dev")) -> None:
    """Tells JAX to start on this CPU where a compiler is installed and its device is not there.

    To be called before JAX has started; what JAX_PLATFORMS says stays.
    """
    if os.environ.get("JAX_PLATFORMS") or not any(map(importlib.util.find_spec, _COMPILERS)):
        return
    if sys.platform != "linux" or any(any(devices.glob(name)) for name in _DEVICES):
        return
    os.environ["JAX_PLATFORMS"] = "cpu"  # for workers too
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_platforms", "cpu")
