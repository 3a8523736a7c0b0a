"""Engines by name: what trains the runs of a sweep, and where."""

from bss.registry import Registry
from bss.sweeps.cluster import RayEngine
from bss.sweeps.engine import Engine
from bss.sweeps.local import LocalEngine
from bss.sweeps.slurm import FilesEngine

ENGINES: Registry[type[Engine]] = Registry(
    "engine", {"local": LocalEngine, "ray": RayEngine, "files": FilesEngine}, type[Engine]
)
