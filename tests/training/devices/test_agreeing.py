"""What processes agree on: late file systems are awaited, a refusal of one's disk is all's."""

import errno
import json

import pytest

from bss.training.devices import processes
from bss.training.devices.processes import AgreedError, check_same, check_seen, mistake_of, together


class Others:
    """Another process: what each gathering is told of it, the last again and again."""

    def __init__(self, *told):
        self.told, self.gathered = list(told), 0

    def gather(self, text):
        """The texts of both."""
        other = self.told[min(self.gathered, len(self.told) - 1)]
        self.gathered += 1
        return [text, other]


@pytest.fixture
def beside(monkeypatch):
    """Puts a process beside this one, and lets no time pass."""
    monkeypatch.setattr(processes.time, "sleep", lambda _: None)
    monkeypatch.setattr(processes, "several", lambda: True)

    def put(*told):
        others = Others(*told)
        monkeypatch.setattr(processes, "gather", others.gather)
        return others

    return put


def test_what_a_process_does_not_see_yet_is_awaited(beside):
    old, new = json.dumps({"checkpoint": "32"}), json.dumps({"checkpoint": "64"})
    others = beside(old, old, old, new)
    check_seen(lambda: {"checkpoint": "64"})
    assert others.gathered == 4


def test_what_it_never_sees_is_told_with_its_name(beside):
    others = beside(json.dumps({"checkpoint": "32"}))
    told = "checkpoint is 32 in process 1 and 64 in process 0; give a runs directory on a file sys"
    with pytest.raises(AgreedError, match=told):
        check_seen(lambda: {"checkpoint": "64"}, 5)
    assert others.gathered == 5


def test_another_config_is_told_by_its_leaf_at_once(beside):
    others = beside(json.dumps({"seed": "0", "schedule.batch": "0:8"}))
    told = "schedule.batch is 0:8 in process 1 and 0:16 in process 0; start all processes"
    with pytest.raises(AgreedError, match=told):
        check_same({"seed": 0, "schedule.batch": "0:16"})
    assert others.gathered == 1


def test_a_full_disk_of_the_first_is_told_by_all_in_a_line(beside):
    full = OSError(errno.ENOSPC, "No space left on device", "runs/abc/curve.jsonl")
    line = "runs/abc/curve.jsonl: No space left on device"
    assert mistake_of(full) == line

    def write():
        raise full

    beside("")  # the second writes nothing, and has not failed
    with pytest.raises(AgreedError, match=f"^process 0: {line}$"):
        together(write)
    beside(line)  # as the second sees it, of the first's
    with pytest.raises(AgreedError, match=f"^{line}$"):
        together(write)
