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


@pytest.mark.parametrize(
    "modules", ["bss.training.worker, bss.training.loop", "bss.cli.train, bss.sweeps.progress"]
)
def test_training_imports_nothing_heavy(modules):
    program = f"import sys, {modules}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
