"""Patches for other projects: each applies to the installed version and does what its text says."""

import importlib.util
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "patches"
pytestmark = pytest.mark.slow


def patched(patch, package, files, tmp_path):
    """Apply a patch to copies of files of an installed package; return the last file's module."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    if package == "optax" and version(package) != "0.2.8":
        pytest.skip(f"the patch is for optax 0.2.8, not {version(package)}")
    root = Path(found.origin).parents[1]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes((root / file).read_bytes())
    text = (FOLDER / patch).read_text()
    command = ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, cwd=tmp_path, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location(f"patched_{package}", tmp_path / files[-1])
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.patch")), ids=lambda path: path.stem)
def test_a_patch_begins_with_a_title_and_at_most_ten_lines(path):
    lines = path.read_text().partition("\n--- ")[0].splitlines()
    assert 8 <= len(lines) <= 10 and not lines[1] and max(map(len, lines)) <= 88


def test_contiguous_rows_of_optax_leave_the_padding_out(tmp_path):
    file = "optax/microbatching/_microbatching.py"
    module = patched("optax-contiguous-microbatches.patch", "optax", [file], tmp_path)
    rows = jnp.arange(1.0, 9.0).at[4:].set(np.nan)  # four real rows, filled from the front

    @jax.jit
    def total(count):
        run = module.microbatch(jnp.sum, 0, 2, num_real_microbatches=count, contiguous=True)
        return run(rows)

    assert float(total(2)) == 1 + 2 + 3 + 4
    usual = module.microbatch(jnp.sum, 0, 2, num_real_microbatches=2)
    assert np.isnan(usual(rows))  # rows 0 and 4, then 1 and 5
    named = module.microbatch(lambda x: x.sum(), (), 2, argnames="x", contiguous=True)
    assert float(named(x=jnp.arange(8.0))) == 28
    with pytest.raises(ValueError, match="CONCAT has no contiguous order"):
        module.microbatch(jnp.sin, 0, 2, module.AccumulationType.CONCAT, contiguous=True)


STEPS = [(0, 8), (100, 16), (150, 64)]


def test_a_step_of_levanter_has_the_lr_of_its_examples(tmp_path):
    files = ["levanter/optim/config.py", "levanter/schedule.py"]
    module = patched("levanter-lr-by-examples.patch", "levanter", files, tmp_path)
    batches = module.BatchSchedule([module.ScheduleStep(*step) for step in STEPS])
    at_step = jax.jit(batches.by_examples(lambda examples: examples))
    for step in (0, 1, 99, 100, 149, 150, 151, 10**6):
        middle = batches.global_data_offset_by_step(step) + batches.batch_size_at_step(step) / 2
        assert float(at_step(step)) == pytest.approx(middle)
    config = (tmp_path / files[0]).read_text()
    assert "return batches.by_examples(replace(self, lr_by_examples=None)" in config
