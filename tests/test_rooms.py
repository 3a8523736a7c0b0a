"""Each package and folder has a budget of code lines; `lint-imports` checks their imports."""

from pathlib import Path

import bss
from tests.lines import by_room

ROOT = Path(bss.__file__).parent

# Code lines, as `python tests/lines.py` counts them; a change that needs more gives up something.
ROOMS = {
    "bss": 741,
    "bss/advice": 398,
    "bss/cli": 2_199,
    "bss/data": 1_153,
    "bss/exports": 519,
    "bss/importers": 2_161,
    "bss/laws": 5_252,
    "bss/machines": 51,
    "bss/models": 1_049,
    "bss/plots": 1_216,
    "bss/points": 612,
    "bss/policies": 687,
    "bss/report": 505,
    "bss/rules": 358,
    "bss/schedules": 928,
    "bss/sweeps": 1_454,
    "bss/tables": 477,
    "bss/theory": 857,
    "bss/training": 3_072,
}
FOLDERS = {"experiments": 4_520, "benchmarks": 2_700, "tests": 21_900}


def test_rooms_and_folders_keep_their_line_budgets():
    assert sum(ROOMS.values()) + FOLDERS["experiments"] <= 28_240
    rooms = by_room(ROOT)
    assert rooms.keys() == ROOMS.keys()
    over = {room: rooms[room] for room in ROOMS if rooms[room] > ROOMS[room]}
    for folder, most in FOLDERS.items():
        if (lines := by_room(ROOT.parent / folder).total()) > most:
            over[folder] = lines
    assert not over
