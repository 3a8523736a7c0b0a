"""The fault of a locked jaxlib that `bss.jitting` works around, and that it does."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import pytest
from packaging.version import Version

from bss import jitting

LOCK = Path("requirements.lock")
# Sums of squares of products, the last of n rows, which should be (n - 1)²; as users compile.
CODE = """
import sys

import jax, jax.numpy as jnp, numpy as np
from bss.jitting import jit

def last(compiled, count, kind):
    rows = np.zeros((count, 3), kind)
    rows[:, 0] = np.arange(count)
    square = lambda row: jnp.sum((jnp.eye(3, dtype=kind) @ row) ** 2)
    return float(compiled(lambda rows: jax.vmap(square)(rows)[-1])(rows))

compiled = {"bss": jit, "jax": jax.jit}[sys.argv[1]]
print(last(compiled, 32769, np.float32))
with jax.enable_x64(True):
    print(last(compiled, 16385, np.float64))
"""


def last_squares(compiled):
    """The last sums in float32 and float64 by a process with XLA's default flags."""
    kept = {n: x for n, x in os.environ.items() if n not in ("XLA_FLAGS",) and "JAX_" not in n}
    run = [sys.executable, "-W", "ignore", "-c", CODE, compiled]
    done = subprocess.run(run, env=kept, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def test_sums_of_squares_of_products_are_right():
    assert last_squares("bss") == [32768.0**2, 16384.0**2]


def test_the_lowest_locked_jaxlib_has_the_fault_that_bss_jitting_is_for():
    found = re.findall(r"^jaxlib==([\d.]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if Version(version("jaxlib")) != min(map(Version, found)):
        pytest.skip("another jaxlib than the lowest that requirements.lock has")
    assert last_squares("jax") != [32768.0**2, 16384.0**2], "use jax.jit, remove bss/jitting.py"


def test_an_option_that_a_compiler_does_not_know_is_not_passed(monkeypatch):
    monkeypatch.setattr(jitting, "RIGHT", {"xla_cpu_no_such_option": ""})
    jitting.knows_option.cache_clear()
    try:
        doubled = jitting.jit(lambda x: 2 * x)
        np.testing.assert_allclose(doubled(jax.numpy.arange(3.0)), [0, 2, 4])
        assert not jitting.knows_option(jax.default_backend())
    finally:
        jitting.knows_option.cache_clear()
