"""Each package and folder has a budget of code lines; `lint-imports` checks their imports."""

from pathlib import Path

import bss
from tests.lines import by_room

ROOT = Path(bss.__file__).parent

# Code lines, as `python tests/lines.py` counts them; a change that needs more gives up something.
ROOMS = {
    "bss": 721,
    "bss/advice": 355,
    "bss/cli": 1_903,
    "bss/data": 1_153,
    "bss/exports": 520,
    "bss/importers": 2_066,
    "bss/laws": 5_069,
    "bss/machines": 51,
    "bss/models": 1_049,
    "bss/plots": 1_060,
    "bss/points": 525,
    "bss/policies": 589,
    "bss/report": 382,
    "bss/rules": 358,
    "bss/schedules": 942,
    "bss/sweeps": 1_446,
    "bss/tables": 470,
    "bss/theory": 857,
    "bss/training": 2_897,
}
FOLDERS = {"experiments": 4_320, "benchmarks": 2_700, "tests": 21_850}


def test_rooms_and_folders_keep_their_line_budgets():
    assert sum(ROOMS.values()) + FOLDERS["experiments"] <= 26_740
    rooms = by_room(ROOT)
    assert rooms.keys() == ROOMS.keys()
    over = {room: rooms[room] for room in ROOMS if rooms[room] > ROOMS[room]}
    for folder, most in FOLDERS.items():
        if (lines := by_room(ROOT.parent / folder).total()) > most:
            over[folder] = lines
    assert not over
