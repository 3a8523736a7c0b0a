"""A part of the random damages and kills, of a seed that is drawn: none silent, none left."""

import os
import random

import pytest

from benchmarks.unattended import damages, kills
from benchmarks.unattended.__main__ import BAD, too_few

SEED = int(os.environ.get("UNATTENDED_SEED", random.randrange(10**6)))
DAMAGES = int(os.environ.get("UNATTENDED_DAMAGES", 12))
KILLS = int(os.environ.get("UNATTENDED_KILLS", 4))


def test_a_full_run_needs_kills_of_each_kind():
    enough = {"kills": 194, "after a second checkpoint": 100, "inside a save": 40}
    assert too_few(enough) == []
    assert too_few(enough | {"inside a save": 39}) == ["39 of 40 inside a save"]
    assert len(too_few({})) == 2


@pytest.mark.slow
def test_damages_are_told_or_change_nothing(tmp_path):
    found = damages.measured(DAMAGES, tmp_path, SEED)
    assert sum(found.values()) == DAMAGES
    assert not [what for what in found if what.startswith(("silent", "crashed"))], (SEED, found)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["one process", "fleet of 4", "Ray"])
def test_killed_runs_end_as_undisturbed_ones(part, tmp_path):
    """Several processes are killed in tests/training/test_processes.py."""
    if part == "Ray":
        pytest.importorskip("ray")
    count = max(round(KILLS * kills.PARTS[part] / 200), 1)
    found = kills.measured(part, count, tmp_path, random.Random(SEED))
    assert found["kills"] == count
    assert not [what for what in BAD if found.get(what)], (SEED, found)
