"""The installed distribution: its name, version and extras, and packages that load lazily."""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bss.renamed import PYTHON

DISTRIBUTION = "batch-size-scaling"
"""What package indexes know it as; `bss` is somebody else's there."""


def version() -> str:
    """Version of the installed package; it is imported late because the look-up is slow.

    Examples:
        >>> version().count(".") >= 1
        True
    """
    from importlib.metadata import version as of

    return of(DISTRIBUTION)


def install(extra: str) -> str:
    """Return the command that adds an extra to the installation there is, a wheel's or a
    checkout's.
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def attach(package: str, file: str) -> tuple[dict[str, tuple[str, str]], Callable[[str], Any]]:
    """Return, by exported name, its module and its name there, and the package's `__getattr__`.

    They are read from the imports of the package's file for type checkers, so that both have one
    list. This is usual for packages that load lazily (SPEC 1 of Scientific Python).
    """
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    exports = {
        alias.asname or alias.name: (str(room.module), alias.name)
        for room in block.body
        if isinstance(room, ast.ImportFrom)
        for alias in room.names
    }

    def imported(name: str) -> Any:
        """Import an exported name from its module."""
        if name not in exports:
            now = f"; it is {PYTHON[name]} now" if name in PYTHON else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{now}")
        room, own_name = exports[name]
        return getattr(importlib.import_module(room), own_name)

    return exports, imported


def from_above(name: str) -> Any:
    """Import a name of a package in a layer above, e.g. "plots.fits:plot_fit".

    Values have methods for their use, e.g. a fit draws its figure, and load them at the first call.
    """
    room, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"bss.{room}"), attribute)
