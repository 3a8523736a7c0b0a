"""Imports between the rooms of bss/ go one way, none goes out of it, and each has a budget."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import bss
from tests.lines import by_room

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


# Code lines, as `python tests/lines.py` counts them; a change that needs more gives up something.
ROOMS = {
    "bss": 750,
    "bss/advice": 250,
    "bss/cli": 2_290,
    "bss/data": 1_160,
    "bss/exports": 520,
    "bss/importers": 2_160,
    "bss/laws": 5_280,
    "bss/machines": 60,
    "bss/models": 1_050,
    "bss/plots": 1_220,
    "bss/points": 680,
    "bss/policies": 600,
    "bss/report": 605,
    "bss/rules": 360,
    "bss/schedules": 930,
    "bss/sweeps": 1_800,
    "bss/tables": 480,
    "bss/theory": 860,
    "bss/training": 3_040,
}
FOLDERS = {"experiments": 5_600, "benchmarks": 2_660, "tests": 22_000}


def test_rooms_and_folders_keep_their_line_budgets():
    assert sum(ROOMS.values()) + FOLDERS["experiments"] <= 29_700
    rooms = by_room(ROOT)
    assert rooms.keys() == ROOMS.keys()
    over = {room: rooms[room] for room in ROOMS if rooms[room] > ROOMS[room]}
    for folder, most in FOLDERS.items():
        if (lines := by_room(ROOT.parent / folder).total()) > most:
            over[folder] = lines
    assert not over
