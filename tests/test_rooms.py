"""Each package and folder has a budget of code lines; `lint-imports` checks their imports."""

from pathlib import Path

import bss
from tests.lines import by_room

ROOT = Path(bss.__file__).parent

# Code lines, as `python tests/lines.py` counts them; a change that needs more gives up something.
ROOMS = {
    "bss": 715,
    "bss/advice": 329,
    "bss/cli": 1_692,
    "bss/data": 1_032,
    "bss/exports": 476,
    "bss/importers": 1_813,
    "bss/laws": 4_785,
    "bss/machines": 51,
    "bss/models": 1_050,
    "bss/plots": 958,
    "bss/points": 535,
    "bss/policies": 385,
    "bss/report": 343,
    "bss/rules": 336,
    "bss/schedules": 889,
    "bss/sweeps": 1_400,
    "bss/tables": 463,
    "bss/theory": 857,
    "bss/training": 2_886,
}
FOLDERS = {"experiments": 4_109, "benchmarks": 2_700, "tests": 21_850}


def test_rooms_and_folders_keep_their_line_budgets():
    assert sum(ROOMS.values()) + FOLDERS["experiments"] <= 25_104
    rooms = by_room(ROOT)
    assert rooms.keys() == ROOMS.keys()
    over = {room: rooms[room] for room in ROOMS if rooms[room] > ROOMS[room]}
    for folder, most in FOLDERS.items():
        if (lines := by_room(ROOT.parent / folder).total()) > most:
            over[folder] = lines
    assert not over
