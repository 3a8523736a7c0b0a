"""Each package and folder has a budget of code lines; `lint-imports` checks their imports."""

from pathlib import Path

import bss
from tests.lines import by_room

ROOT = Path(bss.__file__).parent

# Code lines, as `python tests/lines.py` counts them; a change that needs more gives up something.
ROOMS = {
    "bss": 745,
    "bss/advice": 410,
    "bss/cli": 2_360,
    "bss/data": 1_160,
    "bss/exports": 520,
    "bss/importers": 2_160,
    "bss/laws": 5_250,
    "bss/machines": 60,
    "bss/models": 1_050,
    "bss/plots": 1_220,
    "bss/points": 650,
    "bss/policies": 600,
    "bss/report": 580,
    "bss/rules": 360,
    "bss/schedules": 930,
    "bss/sweeps": 1_450,
    "bss/tables": 480,
    "bss/theory": 860,
    "bss/training": 3_075,
}
FOLDERS = {"experiments": 4_800, "benchmarks": 2_660, "tests": 22_000}


def test_rooms_and_folders_keep_their_line_budgets():
    assert sum(ROOMS.values()) + FOLDERS["experiments"] <= 29_820
    rooms = by_room(ROOT)
    assert rooms.keys() == ROOMS.keys()
    over = {room: rooms[room] for room in ROOMS if rooms[room] > ROOMS[room]}
    for folder, most in FOLDERS.items():
        if (lines := by_room(ROOT.parent / folder).total()) > most:
            over[folder] = lines
    assert not over
