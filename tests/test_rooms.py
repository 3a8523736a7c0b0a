"""Imports between the rooms of bss/ go one way, and none goes out of it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import bss

ROOT = Path(bss.__file__).parent


def imported(path):
    """Modules that a file names, also where it does so late."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_rooms_import_in_one_direction_and_nothing_outside():
    files = {path: list(imported(path)) for path in ROOT.rglob("*.py")}
    outside = {name for names in files.values() for name in names}
    assert not {name.split(".")[0] for name in outside} & {"experiments", "configs", "tests"}
    rooms = {path.stem for path in ROOT.iterdir()} - {"__init__", "__main__", "__pycache__"}
    below = {room: set() for room in rooms}
    for path, names in files.items():
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        heads = {name.split(".")[1] for name in names if name.startswith("bss.")}
        below.setdefault(room, set()).update(heads & rooms - {room})
    order = list(TopologicalSorter(below).static_order())  # a cycle raises
    assert order.index("schedules") < order.index("laws") < order.index("cli")
    assert not below["laws"] & {"training", "sweeps"} and not below["plots"] & {"training"}
