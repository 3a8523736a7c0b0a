"""A tiny run compiled for machines that are not here, if their compilers are installed."""

import json
import math
import os
import subprocess
import sys

import pytest

from bss.errors import InputError
from bss.machines.absent import _CUBES, _PLANES, machine_named
from bss.models.transformer import TransformerConfig
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.optimizers import AdamW
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig
from bss.values import to_dict

MODEL = TransformerConfig(512, 2, 128, 2, 512, dtype="bfloat16", scan_layers=True)
RUN = RunConfig(
    MODEL,
    DataConfig(seq_len=256),
    AdamW(),
    ScheduleConfig(256 * 320, BatchSchedule((0,), (16,))),
    EvaluationConfig(tokens=256 * 16),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "on", "devices", "pool"),
    [
        ("jax_plugins.xla_cuda13", "h100:1", 1, 78.2e9),
        ("libtpu", "v5e:2x4", 8, 16 * 2**30),
    ],
)
def test_a_run_compiles_for_an_absent_machine(compiler, on, devices, pool, tmp_path):
    pytest.importorskip(compiler)
    file = tmp_path / "run.json"
    execution = {"buckets": [16], "attention": "reference"}
    file.write_text(json.dumps({"run": to_dict(RUN), "execution": execution}))
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    command = [sys.executable, "-m", "bss", "compile", str(file), "--on", on, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["devices"], found["fits"]) == (devices, True)
    assert found["pool_bytes"] == pytest.approx(pool, rel=1e-3)
    (train,) = found["programs"]
    assert train["state_bytes"] == 4 * (3 * MODEL.counts().total + 2)  # weights and two moments
    assert train["state_bytes"] < train["peak_bytes"] < 1e9
    flops = 16 * 256 * MODEL.training_flops_per_token(256)
    assert train["model_flops"] == pytest.approx(flops)
    peak = {"h100:1": 989.5e12, "v5e:2x4": 8 * 197e12}[on]
    assert train["least_seconds"] == pytest.approx(flops / peak)


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("v5p-64", "v5p:2x4x4"),
        ("v5p-8", "v5p:2x2x1"),
        ("v5litepod-8", "v5e:2x4"),
        ("v5litepod-256", "v5e:16x16"),
        ("v6e-4", "v6e:2x2"),
        ("v5p:4x4x2", "v5p:4x4x2"),
        ("cpu:2", "cpu:2"),
    ],
)
def test_slices_have_the_names_of_the_cloud(name, topology):
    assert machine_named(name) == topology


@pytest.mark.parametrize("name", ["v5p-65", "v5litepod-7", "v6e-x", "v5p-"])
def test_a_slice_of_no_size_is_one_line(name):
    with pytest.raises(InputError, match=f"--on {name}: no slice of this size; expected one of"):
        machine_named(name)


def test_slices_have_as_many_chips_as_their_name_counts():
    assert {math.prod(map(int, shape.split("x"))): shape for shape in _PLANES.values()} == _PLANES
    assert {2 * math.prod(map(int, shape.split("x"))): shape for shape in _CUBES.values()} == _CUBES
