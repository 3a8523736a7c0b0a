"""With XLA's default flags stops and the number of steps per dispatch change no bit of a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("default_flags.py")
OF_TESTS = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")


@pytest.mark.slow
def test_stops_and_steps_change_no_bit_with_the_default_flags():
    environment = {name: x for name, x in os.environ.items() if name not in OF_TESTS}
    printed = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, stdout=subprocess.PIPE, check=True
    ).stdout
    ends = json.loads(printed)
    assert set(ends) == {"1", "2"}
    for hashes in ends.values():
        assert len(hashes) == 4
        assert set(hashes.values()) == {hashes["straight"]}
