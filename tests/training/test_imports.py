"""A bare accelerator machine can train: no pandas, no tfds, no grain behind the trainer."""

import subprocess
import sys

HEAVY = (
    "pandas",
    "pyarrow",
    "tensorflow_datasets",
    "tokenizers",
    "matplotlib",
    "scipy.stats",
    "grain",
)


TRAINERS = (
    "bss.training.running.worker, bss.training.running.loop, bss.cli.train, bss.sweeps.progress"
)


def test_training_imports_nothing_heavy():
    program = f"import sys, {TRAINERS}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
