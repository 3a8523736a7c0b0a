"""What processes agree on: late file systems are awaited, a refusal of one's disk is all's."""

import errno
import json
import subprocess
import sys

import pytest

from bss.errors import InputError
from bss.training import distributed
from bss.training.distributed import (
    DistributedConfig,
    MultihostError,
    assert_same,
    await_same,
    error_line,
    initialized,
    on_all_hosts,
)


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
    monkeypatch.setattr(distributed.time, "sleep", lambda _: None)
    monkeypatch.setattr(distributed, "is_multihost", lambda: True)

    def put(*told):
        others = Others(*told)
        monkeypatch.setattr(distributed, "gather_text", others.gather)
        return others

    return put


def test_what_a_process_does_not_see_yet_is_awaited(beside):
    old, new = json.dumps({"checkpoint": "32"}), json.dumps({"checkpoint": "64"})
    others = beside(old, old, old, new)
    await_same(lambda: {"checkpoint": "64"})
    assert others.gathered == 4


def test_what_it_never_sees_is_told_with_its_name(beside):
    others = beside(json.dumps({"checkpoint": "32"}))
    told = "checkpoint is 32 in process 1 and 64 in process 0; give a runs directory on a file sys"
    with pytest.raises(MultihostError, match=told):
        await_same(lambda: {"checkpoint": "64"}, 5)
    assert others.gathered == 5


def test_another_config_is_told_by_its_leaf_at_once(beside):
    others = beside(json.dumps({"seed": "0", "schedule.batch": "0:8"}))
    told = "schedule.batch is 0:8 in process 1 and 0:16 in process 0; start all processes"
    with pytest.raises(MultihostError, match=told):
        assert_same({"seed": 0, "schedule.batch": "0:16"})
    assert others.gathered == 1


def test_a_full_disk_of_the_first_is_told_by_all_in_a_line(beside):
    full = OSError(errno.ENOSPC, "No space left on device", "runs/abc/curve.jsonl")
    line = "runs/abc/curve.jsonl: No space left on device"
    assert error_line(full) == line

    def write():
        raise full

    beside("")  # the second writes nothing, and has not failed
    with pytest.raises(MultihostError, match=f"^process 0: {line}$"):
        on_all_hosts(write)
    beside(line)  # as the second sees it, of the first's
    with pytest.raises(MultihostError, match=f"^{line}$"):
        on_all_hosts(write)


HANGING = """
import time
from bss.training.distributed import HangGuard
guard = HangGuard({seconds})
guard.watch()
{paused}
time.sleep(2)
"""


@pytest.mark.parametrize(
    ("seconds", "paused", "status"),
    [
        (0.5, "", 1),
        pytest.param(0.5, "guard.pause()", 0, marks=pytest.mark.slow),
        pytest.param(0, "", 0, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_hangs_ends_with_its_stacks(seconds, paused, status):
    program = HANGING.format(seconds=seconds, paused=paused)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == status
    assert ("Timeout" in done.stderr and "Thread" in done.stderr) == bool(status)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"processes": 0}, "distributed.processes"),
        ({"init_timeout": 0.5}, "distributed.init_timeout"),
        ({"processes": 2}, "expected HOST:PORT, of a port from 1 to 65535, or auto"),
        ({"coordinator": "here"}, "expected HOST:PORT"),
        ({"coordinator": "here:65536"}, "'here:65536'; expected HOST:PORT, of a port from 1"),
        ({"coordinator": "here:1", "processes": 2}, "process is None of 2"),
        ({"coordinator": "here:1", "processes": 2, "process": 2}, "process is 2 of 2"),
    ],
)
def test_what_identifies_no_process_is_refused(settings, says):
    with pytest.raises(InputError, match=says):
        DistributedConfig(**settings)


def test_one_process_connects_to_nothing():
    with initialized(DistributedConfig()):
        assert not distributed.is_multihost() and distributed.is_primary()
    assert DistributedConfig(coordinator="auto").process is None
