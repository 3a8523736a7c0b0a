"""Memory that a process keeps; each test has a process of its own, as malloc's settings stay."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from bss.training.allocator import keep_freed_memory

FAULTS = """
import resource, sys
import numpy as np
from bss.training.allocator import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit("not glibc")
np.ones(2**25)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    np.ones(2**25)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(which: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, which], capture_output=True, text=True, check=False
    )
    if "not glibc" in done.stderr:
        pytest.skip("malloc is not glibc's")
    return int(done.stdout)


def test_a_block_is_taken_again_without_page_faults():
    assert faults("kept") < 100 < faults("free")


def test_settings_of_the_user_stay(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_max=9")
    assert not keep_freed_memory()


def test_nothing_happens_where_malloc_is_another(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr("bss.training.allocator.ctypes", SimpleNamespace(CDLL=lambda _: object()))
    assert not keep_freed_memory()


def test_the_collector_does_not_visit_the_modules_of_a_command():
    program = (
        "import gc, sys; from bss.cli import main; sys.argv = ['bss', 'models', '--json']; main(); "
        "print(gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True True", done.stderr
