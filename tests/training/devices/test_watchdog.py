"""A step that hangs ends its process by a line and a status of its own; one that ends does not."""

import subprocess
import sys
import time

import pytest

from bss.training.devices.watchdog import LOST, Watchdog

HANGS = """
import sys, time
from bss.training.devices.watchdog import Watchdog
watchdog = Watchdog(float(sys.argv[1]), "run abc")
with watchdog.watched():
    time.sleep(float(sys.argv[2]))
print("ended")
"""


@pytest.mark.parametrize(
    ("limit", "seconds", "status"), [("0.2", "60", LOST), ("0", "0.5", 0), ("60", "0.1", 0)]
)
def test_a_block_that_hangs_ends_the_process(limit, seconds, status):
    command = [sys.executable, "-c", HANGS, limit, seconds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == status, done.stderr
    told = f"run abc: a step has not ended within {limit} seconds (execution.step_limit), so a "
    assert done.stderr.startswith(told) == bool(status)
    assert done.stderr.count("\n") == bool(status)
    assert done.stdout == ("" if status else "ended\n")


def test_many_short_blocks_and_what_is_between_them_are_not_counted(monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    watchdog = Watchdog(0.4, "run abc")
    for _ in range(3):
        with watchdog.watched():
            time.sleep(0.2)
    time.sleep(0.6)
    watchdog.close()
    assert not ended
