"""Each package and folder has a budget of code lines; `lint-imports` checks their imports."""

from pathlib import Path

import bss
from tests.lines import by_room

ROOT = Path(bss.__file__).parent

# Code lines, as `python tests/lines.py` counts them; a change that needs more gives up something.
ROOMS = {
    "bss": 709,
    "bss/advice": 327,
    "bss/cli": 1_592,
    "bss/data": 1_026,
    "bss/exports": 476,
    "bss/importers": 1_801,
    "bss/laws": 4_787,
    "bss/machines": 51,
    "bss/models": 1_049,
    "bss/plots": 949,
    "bss/points": 514,
    "bss/policies": 385,
    "bss/report": 343,
    "bss/rules": 348,
    "bss/schedules": 897,
    "bss/sweeps": 1_432,
    "bss/tables": 463,
    "bss/theory": 783,
    "bss/training": 2_889,
}
FOLDERS = {"experiments": 4_026, "benchmarks": 2_700, "tests": 21_870}


def test_rooms_and_folders_keep_their_line_budgets():
    assert sum(ROOMS.values()) + FOLDERS["experiments"] <= 24_847
    rooms = by_room(ROOT)
    assert rooms.keys() == ROOMS.keys()
    over = {room: rooms[room] for room in ROOMS if rooms[room] > ROOMS[room]}
    for folder, most in FOLDERS.items():
        if (lines := by_room(ROOT.parent / folder).total()) > most:
            over[folder] = lines
    assert not over
