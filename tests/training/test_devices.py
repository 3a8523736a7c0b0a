"""The same numbers on any number of devices; what moves between them; gradients in bfloat16."""

import dataclasses
import itertools
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.models.transformer import TransformerConfig
from bss.training.execution import Execution, compiler_options, describe
from bss.training.hardware import peak_flops
from bss.training.run_directory import throughput
from bss.training.sharding import make_mesh
from tests.training.eight_devices import model

MODEL = model("float32")
KINDS = ("all-reduce", "all-gather", "reduce-scatter")


@pytest.fixture(scope="module")
def trained():
    """By dtype and number of devices, what `eight_devices` prints."""
    command = [sys.executable, "-m", "tests.training.eight_devices"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SPLIT = ("2x4", "1x8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "layout", "tolerance"),
    [
        *(("float32", layout, 1e-6) for layout in ("2", "4", "8", *SPLIT)),
        *(("bfloat16", layout, 2e-3) for layout in ("8", "2x4")),
    ],
)
def test_losses_and_gradient_norms_do_not_depend_on_the_devices(trained, dtype, layout, tolerance):
    one, many = (np.array(trained[dtype][n]["metrics"]) for n in ("1", layout))
    np.testing.assert_allclose(many[:, 0], one[:, 0], rtol=tolerance)
    np.testing.assert_allclose(many[:, 1], one[:, 1], rtol=10 * tolerance)
    assert trained[dtype][layout]["compilations"] == 0
    # Shares of a bucket are noisier than the bucket; devices that split weights make one together.
    shares = int(layout.partition("x")[0])
    if shares == 1:
        np.testing.assert_allclose(many[:, 2], one[:, 2], rtol=10 * tolerance)
    else:
        assert np.all(many[:, 2] > one[:, 2] * shares)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_devices_meet_once_a_step_in_a_float32_sum(trained, dtype):
    found = trained[dtype]["8"]["collectives"]
    assert {(one["kind"], one["in_loop"]) for one in found} == {("all-reduce", False)}
    scalars = sum(one["bytes"] for one in found) - 4 * MODEL.counts().total
    assert 0 <= scalars <= 3 * 4  # the loss, the targets and the squares
    assert trained[dtype]["1"]["collectives"] == []


@pytest.mark.slow
@pytest.mark.parametrize("layout", SPLIT)
def test_split_weights_move_as_computed(trained, layout):
    """CPUs gather in float32 for all activations; a loop body is counted once."""
    fsdp = int(layout.partition("x")[2])
    found = dict.fromkeys(itertools.product(KINDS, (False, True)), 0)
    for one in trained["float32"][layout]["collectives"]:
        found[one["kind"], one["in_loop"]] += one["bytes"]
    layer, ends = 4 * 32 * 32 + 2 * 32 * 64, 2 * 50 * 32
    # A layer is gathered in the loop forward and once more backward; embedding and head once.
    assert sum(found["all-gather", place] for place in (False, True)) == 4 * (2 * layer + ends)
    assert found["reduce-scatter", True] == 4 * (layer + ends) // fsdp
    assert found["reduce-scatter", False] == 0 < found["all-reduce", False]
    assert found["all-reduce", True] > 0  # vectors, for the squares


@pytest.mark.slow
def test_a_run_goes_on_on_other_devices(trained):
    straight, resumed = trained["straight"], trained["resumed"]
    assert len(straight) > 15
    for name in ("loss", "eval_loss", "eval_loss_avg_8%", "grad_norm"):
        one, many = (np.array([row[name] for row in rows]) for rows in (straight, resumed))
        np.testing.assert_allclose(many, one, rtol=1e-5 if name == "grad_norm" else 1e-6)


@pytest.mark.slow
def test_gradients_in_bfloat16_are_those_of_float32():
    batch, seq_len, vocab = 64, 256, 48
    model = TransformerConfig(vocab, num_layers=1, d_model=16, num_heads=1, d_ff=32)
    draw = np.random.default_rng(0)
    often = 1 / np.arange(1, vocab + 1)  # the gradients of frequent tokens are long sums
    size = (batch, seq_len + 1)
    sequences = draw.choice(vocab, size, p=often / often.sum()).astype(np.int32)
    params = model.init(0)
    exact, found = (
        jax.jit(jax.grad(lambda p, s, m=m: m.loss(p, s)[0]))(params, jnp.asarray(sequences))
        for m in (model, dataclasses.replace(model, dtype="bfloat16"))
    )
    wide = [(exact["embedding"], found["embedding"], -1)]
    wide += [(a, b, None) for a, b in zip(*map(jax.tree.leaves, (exact, found)), strict=True)]
    for a, b, axis in wide:
        error = np.linalg.norm(b - a, axis=axis) / np.linalg.norm(a, axis=axis)
        assert np.max(error) < 0.02


def test_repeatable_is_recorded_and_told_to_the_compiler_of_gpus(tmp_path):
    class Gpu:
        platform = "gpu"

    class Mesh:
        devices = np.array([Gpu()])

    plain, repeatable = Execution(), Execution(repeatable=True)
    mesh = make_mesh(1)
    assert compiler_options(plain, Mesh()) == {}  # type: ignore[arg-type]
    assert compiler_options(repeatable, Mesh()) == {"xla_gpu_deterministic_ops": True}  # type: ignore[arg-type]
    assert compiler_options(repeatable, mesh) == {}
    assert not describe(mesh, plain)["repeatable"]
    assert describe(mesh, repeatable)["repeatable"]


@pytest.mark.parametrize(("kind", "peak"), [("TPU v5", 459e12), ("TPU v99", None)])
def test_the_peak_is_that_of_the_kind_exactly_or_unknown(monkeypatch, kind, peak):
    class Device:
        platform, device_kind = "tpu", kind

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert peak_flops() == peak
    rows = [{"batch": 4, "tokens": 64, "seconds": 2.0}]
    (speed,) = throughput(rows, peak)
    assert speed.tokens_per_second == 32
    assert speed.mfu == (peak and 32 / peak)


@pytest.mark.slow
def test_anybodys_loss_has_one_gradient_on_any_devices(trained):
    (loss, gradients), *others = trained["wrapped"]
    for other, own in others:
        assert other == pytest.approx(loss, rel=1e-6)
        assert own == pytest.approx(gradients, rel=1e-5, abs=1e-6)
