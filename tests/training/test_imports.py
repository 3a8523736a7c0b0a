"""A bare accelerator machine can train: no pandas, no tfds, no grain behind the trainer."""

import subprocess
import sys

import pytest

HEAVY = (
    "pandas",
    "pyarrow",
    "tensorflow_datasets",
    "tokenizers",
    "matplotlib",
    "scipy.stats",
    "grain",
)


TRAINERS = "bss.training.worker, bss.training.loop, bss.cli.train, bss.sweeps.progress"


def test_training_imports_nothing_heavy():
    program = f"import sys, {TRAINERS}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_a_sweep_in_python_loads_no_law():
    fitting = ("bss.laws", "bss.points", "bss.plots", "bss.report", "scipy.optimize")
    program = (
        "import sys, bss; bss.sweep, bss.train; "
        f"print([m for m in sys.modules if m.startswith({fitting!r})], "
        "'bss.sweeps.engines' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[] True", done.stdout + done.stderr


GLOBAL_STATE = """
import logging, os, pkgutil, signal, sys, warnings
import absl.logging, flax, grain, jax, optax, orbax.checkpoint, pandas, matplotlib, scipy.optimize
import jax._src.monitoring as monitoring, submitit, tensorstore

def state():
    loggers = {
        name: (one.level, len(one.handlers), one.disabled)
        for name, one in logging.root.manager.loggerDict.items()
        if isinstance(one, logging.Logger) and (one.level or one.handlers or one.disabled)
    }
    listeners = [monitoring.get_event_duration_listeners(), monitoring.get_event_listeners()]
    return {
        "loggers": loggers,
        "root": (logging.root.level, len(logging.root.handlers)),
        "listeners": [len(each) for each in listeners],
        "path": list(sys.path),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook),
        "filters": list(warnings.filters),
        "signals": [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)],
        "environment": dict(os.environ),
        "config": dict(jax.config.values),
    }

before = state()
import bss
for module in pkgutil.walk_packages(bss.__path__, "bss."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
after = state()
changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
assert "bss.training.loop" in sys.modules
assert not changed, changed
"""


@pytest.mark.slow
def test_importing_bss_changes_nothing_global():
    done = subprocess.run([sys.executable, "-c", GLOBAL_STATE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
