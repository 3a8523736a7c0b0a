"""Split weights: as one device trains, resumed anywhere; how all lies; what is refused."""

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from bss.errors import InputError
from bss.models.base import Compute, ModelFamily
from bss.models.transformer import TransformerConfig
from bss.sweeps.grid import overlay
from bss.training.loop import Interrupted, train, train_vmapped
from bss.training.optimizers import AdamW, Muon, ScheduleFree
from bss.training.run_config import RunConfig
from bss.training.run_directory import read_curve
from bss.training.sharding import FSDP, all_gather, all_gather_fn, make_mesh, mesh_of, specs
from bss.training.step import state_shapes

MODEL = TransformerConfig(48, 2, 16, 2, 32, num_kv_heads=1, scan_layers=True, remat=True)


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


def curve(run, execution):
    """Losses of weights and average, gradient norm and noise scale (0: not known) of every row."""
    rows = read_curve(Path(execution.runs) / run.id)
    names = "loss", "eval_loss", "eval_loss_avg_8%", "grad_norm", "noise_scale"
    return np.array([[row[name] or 0 for name in names] for row in rows])


@pytest.mark.slow
def test_split_weights_train_as_one_device_and_resume_on_any(
    tiny_run, tiny_execution, tmp_path, stop_after
):
    """Through a batch change, interrupted on two devices and continued on one."""
    changes = {
        "averages": ("8%",),
        "noise_scale.half_life": 1000,
        "schedule.tokens": 20 * 64,
        "schedule.batch": "0:2 320:4",
        "schedule.warmup": 64,
        "evaluation.per_efold": 30,
        "evaluation.first": 64,
        "evaluation.tokens": 16 * 16,
    }
    run = overlay(tiny_run, changes)
    one = dataclasses.replace(tiny_execution, buckets=(2,))
    train(run, one)
    elsewhere = dataclasses.replace(one, runs=str(tmp_path))
    split = dataclasses.replace(elsewhere, devices=2, fsdp=2)
    with pytest.raises(Interrupted):
        train(run, split, stop=stop_after(20))
    with pytest.warns(RuntimeWarning, match=r"another execution \(devices, fsdp"):
        status = train(run, elsewhere)
    assert (status.status, status.recompilations) == ("finished", 0)
    one, two = curve(run, one), curve(run, split)
    assert len(one) > 20
    np.testing.assert_allclose(two[:, :4], one[:, :4], rtol=1e-4)
    assert np.count_nonzero(one[:, 4]) > 3
    np.testing.assert_allclose(two[:, 4], one[:, 4], rtol=1e-3)


@pytest.mark.parametrize("optimizer", [AdamW(), Muon(), ScheduleFree()])
def test_all_that_is_kept_of_a_weight_is_split_as_it_is(optimizer):
    run = RunConfig(MODEL, optimizer=optimizer, averages=("8%", "4%"))
    state = state_shapes(run, make_mesh(2, 2))
    for x in jax.tree.leaves(state):
        ways = 2 if x.size > 64 else 1  # not of norm scales and scalars
        assert np.prod(x.sharding.shard_shape(x.shape)) == x.size / ways
    assert state.averages is not None
    embedding = state.averages.sums["embedding"]
    assert embedding.sharding.shard_shape(embedding.shape) == (2, 48, 8)
    layers = state.params["layers"]["mlp"]["down"]["kernel"]
    assert layers.sharding.shard_shape(layers.shape) == (2, 16, 16)


@dataclass(frozen=True)
class Bigram(ModelFamily):
    """A family of a user's own, which says nothing of devices."""

    def init(self, seed):
        draw = np.random.default_rng(seed)
        return {name: draw.normal(size=(8, 8)).astype(np.float32) for name in ("rows", "columns")}

    def loss(self, params, sequences_BxT1):
        logits = params["rows"][sequences_BxT1[:, :-1]] @ params["columns"]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, sequences_BxT1[:, 1:])
        return losses.sum(), {}

    def partition_names(self, params):
        return {"rows": ("vocab", "embed"), "columns": ("embed", "vocab")}


def test_a_family_that_knows_no_devices_is_gathered_at_once():
    model, mesh = Bigram(vocab_size=8), make_mesh(2, 2)
    params = jax.tree.map(jnp.asarray, model.init(0))
    sequences = jnp.arange(2 * 9).reshape(2, 9) % 8
    split = specs(model, params, mesh)
    assert split == {"rows": PartitionSpec(None, FSDP), "columns": PartitionSpec(FSDP)}
    whole, given = all_gather_fn(model, mesh)
    loss = model.loss_fn(Compute(all_gather=whole))
    gradients = jax.shard_map(
        jax.grad(
            lambda params: loss(given(params), sequences)[0] / 2
        ),  # every device has all of them
        mesh=mesh,
        in_specs=(split,),
        out_specs=split,
        check_vma=False,
    )
    expected = jax.jit(jax.grad(lambda params: model.loss(params, sequences)[0]))(params)
    for name, gradient in jax.jit(gradients)(params).items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-5, atol=1e-6)


def test_what_is_no_shard_is_left_alone():
    tree = {"scale": np.ones(3)}
    assert all_gather(tree)["scale"] is tree["scale"]


@dataclass(frozen=True)
class Chip:
    """Of a TPU v5p, as a mesh is made of it."""

    id: int
    coords: tuple[int, ...]
    platform: str = "tpu"
    device_kind: str = "TPU v5"
    process_index: int = 0
    core_on_chip: int = 0


def test_a_torus_holds_what_its_axes_make():
    chips = [Chip(n, at) for n, at in enumerate(itertools.product(range(4), repeat=3))]
    assert dict(mesh_of(chips, 16).shape) == {"data": 4, "fsdp": 16}
    expected = "fsdp is 8; 64 devices of TPU v5 hold meshes of fsdp 1, 4, 16, 64: use one of them"
    with pytest.raises(InputError, match=expected):
        mesh_of(chips, 8)


def test_what_cannot_be_split_is_told(tiny_run, tiny_execution):
    with pytest.raises(InputError, match=r"execution.fsdp is 3; 2 devices of cpu .* fsdp 1, 2"):
        make_mesh(2, 3)
    odd = RunConfig(dataclasses.replace(MODEL, d_ff=33))
    with pytest.raises(InputError, match=r"execution.fsdp is 2; .* divisors of 1: use one"):
        state_shapes(odd, make_mesh(2, 2))
    with pytest.raises(InputError, match=r"execution.fsdp is 0; expected 1 or more"):
        dataclasses.replace(tiny_execution, fsdp=0)
    split = dataclasses.replace(tiny_execution, devices=2, fsdp=2)
    with pytest.raises(InputError, match=r"execution.fsdp: 2 given; write 1: vmapped runs"):
        train_vmapped([tiny_run], split)
