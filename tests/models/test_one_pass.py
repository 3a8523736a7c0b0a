"""What lies between products in few passes, against the same as CPUs compute it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bss.models import losses as losses_module
from bss.models.attention import KERNELS, Kernel, reference
from bss.models.base import DEFAULT_LAYERS, Compute, Layers, RematPolicy
from bss.models.losses import cross_entropies, cross_entropy
from bss.models.network import init, kept_bytes, loss_and_balance, remat_policy
from bss.models.parts import Norm, fused_norm_rope, rope
from bss.models.transformer import MixtureConfig, TransformerConfig
from bss.training.optimizers import StepSettings
from bss.training.run_config import DataConfig, RunConfig
from bss.training.step import init_state, make_step

PUBLISHED = TransformerConfig(
    vocab_size=29,
    num_layers=2,
    d_model=24,
    num_heads=4,
    d_ff=40,
    norm="layer",
    activation="gelu",
    scan_layers=True,
    remat=True,
)
MODERN = dataclasses.replace(PUBLISHED, norm="rms", activation="swiglu", num_kv_heads=2)
# Compiling is nearly all of the time here, so the compiler is told not to optimise.
quick_jit = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)


@pytest.fixture
def fused(monkeypatch):
    """A kernel of attention by whose name the rest of a block is in one pass, of any device."""
    monkeypatch.setitem(KERNELS, "fused", Kernel(reference, fused=True))
    monkeypatch.setattr(losses_module, "LOGITS_AT_ONCE", 29 * 20)
    return "fused"


@functools.cache
def parameters(config):
    """Fresh ones moved by noise, so that no scale is 1 and no two layers are alike."""
    leaves, tree = jax.tree.flatten(init(config, 0))
    draw = np.random.default_rng(0)
    moved = [np.asarray(x) + 0.1 * draw.standard_normal(x.shape, np.float32) for x in leaves]
    return jax.tree.unflatten(tree, moved)


def graded(config, attention, layers=DEFAULT_LAYERS):
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, (3, 13), np.int32)
    loss = config.loss_fn(Compute(attention, layers=layers))
    return quick_jit(jax.value_and_grad(lambda p: loss(p, tokens)[0]))(parameters(config))


def error(found, expected):
    """The worst tensor's, as a part of it."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(np.linalg.norm(np.asarray(x, np.float32) - y) / np.linalg.norm(y) for x, y in pairs)


@pytest.mark.slow
def test_loss_and_gradients_are_the_same_up_to_rounding(fused):
    exact = graded(MODERN, "reference")
    assert 0 < error(graded(MODERN, fused), exact) < 5e-6
    half = dataclasses.replace(MODERN, dtype="bfloat16")
    rounded, found = graded(half, "reference"), graded(half, fused)
    assert error(found, exact) < 1.3 * error(rounded, exact) < 0.1
    assert found[0] == pytest.approx(float(exact[0]), rel=2e-3)


@pytest.mark.slow
def test_how_layers_are_computed_changes_neither_loss_nor_gradient(fused):
    four = dataclasses.replace(PUBLISHED, num_layers=4)
    assert error(graded(four, fused, Layers(2, "attention")), graded(four, fused)) < 5e-6


@pytest.mark.slow
def test_a_curve_is_the_same_up_to_rounding(fused):
    run = RunConfig(dataclasses.replace(PUBLISHED, dtype="bfloat16"), DataConfig(seq_len=12))
    sequences = np.random.default_rng(2).integers(0, 29, (20, 1, 4, 13), np.int32) // 3
    settings = StepSettings(*map(np.float32, (4e-3, 0.1, 0.05, 0.0)), np.zeros(0, np.float32))  # type: ignore[call-arg]

    def curve(*how, **layers):
        step, state = make_step(run, None, *how, **layers), init_state(run)
        one = lambda state, bucket: step(state, bucket, jnp.int32(1), settings)  # noqa: E731
        return quick_jit(lambda: jax.lax.scan(one, state, sequences)[1].loss)()

    before, after = curve(), curve(fused, layers=Layers(0, "all"))
    assert before[-1] < before[0] - 0.3
    np.testing.assert_allclose(after, before, rtol=4e-3)


def products(layers, config=PUBLISHED):
    """That a gradient is made of, those of one turn of each loop."""
    tokens = np.zeros((3, 13), np.int32)
    compute = Compute(layers=layers)
    graded = jax.grad(lambda p: loss_and_balance(config, p, tokens, compute)[0])
    return str(jax.make_jaxpr(graded)(parameters(config))).count("dot_general[")


@pytest.mark.slow
def test_kept_results_are_not_computed_again():
    everything, nothing = Layers(remat_policy="all"), Layers()
    assert products(nothing) - products(everything) >= 6
    assert products(Layers(remat_policy="products")) == products(everything)
    tokens, width, hidden = 3 * 12, 24, 40
    kept = kept_bytes(PUBLISHED, tokens, "all")
    assert kept == 2 * 4 * tokens * (10 * width + 2 * hidden)
    assert products(Layers(remat_policy="all", remat_budget_bytes=kept)) == products(everything)
    budgets = kept - 1, 2 * 4 * tokens * width, -1
    less = [Layers(remat_policy="all", remat_budget_bytes=budget) for budget in budgets]
    chosen = [remat_policy(PUBLISHED, tokens, one) for one in less]
    assert chosen == ["products", "attention", "nothing"]
    assert products(less[-1]) == products(nothing)


@pytest.mark.slow
def test_products_of_experts_are_kept_too():
    mixture = MixtureConfig(**dataclasses.asdict(PUBLISHED), num_experts=4, top_k=3)

    def made(keep):
        return products(Layers(remat_policy=keep), mixture)

    assert made("products") == made("all") < made("nothing")
    dense = dataclasses.replace(PUBLISHED, d_ff=mixture.mlp_width)
    # 108 rows of three experts a token in 17 blocks of 8; widths 24, hidden 120.
    padded = 17 * 8 / 108
    products_more = padded * (120 + 72) - 120
    rest_more = (padded - 1) * 120 + 2 * 72
    expected: dict[RematPolicy, float] = {
        "attention": 0,
        "products": products_more,
        "all": products_more + rest_more,
    }
    for keep, more in expected.items():
        apart = kept_bytes(mixture, 36, keep) - kept_bytes(dense, 36, keep)
        assert apart == pytest.approx(2 * 4 * 36 * more, abs=8)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_and_rotations_have_the_gradients_of_what_they_are(kind):
    draw = np.random.default_rng(0)
    x, dy = draw.standard_normal((2, 2, 9, 3, 8)).astype(np.float32)
    scale, x = draw.standard_normal(8).astype(np.float32), 3 * x + 1
    graphdef = nnx.split(Norm(kind, 8))[0]

    def as_on_cpus(x, scale):
        return jnp.vdot(dy, rope(nnx.merge(graphdef, {"scale": scale})(x), 100.0) / 4)

    def in_one_pass(x, scale):
        return jnp.vdot(dy, fused_norm_rope(kind, 100.0, 0.25, x, scale))

    exact, found = (
        jax.jit(jax.value_and_grad(f, (0, 1)))(x, scale) for f in (as_on_cpus, in_one_pass)
    )
    assert error(found, exact) < 5e-6


def test_between_products_no_row_is_kept_in_float32(monkeypatch):
    monkeypatch.setitem(KERNELS, "own", Kernel(lambda q, k, v: q * k + v, fused=True))
    half, tokens = dataclasses.replace(PUBLISHED, dtype="bfloat16"), np.zeros((3, 13), np.int32)
    loss = half.loss_fn(Compute("own", layers=Layers(0, "all")))
    backward = jax.eval_shape(lambda p: jax.vjp(lambda p: loss(p, tokens)[0], p), init(half, 0))
    rows = [x for x in jax.tree.leaves(backward[1]) if x.shape[:3] == (2, 3, 12)]
    assert {x.dtype.name for x in rows} == {"bfloat16", "float32"}
    assert all(x.shape[-1] == 1 for x in rows if x.dtype == jnp.float32)


@pytest.mark.parametrize("chunk", [4, 1000])
def test_a_loss_of_logits_read_once_is_the_same(monkeypatch, chunk):
    """Also of far logits, and where the vocabulary is filled up."""
    monkeypatch.setattr(losses_module, "LOGITS_AT_ONCE", chunk * 29)
    draw = np.random.default_rng(0)
    x, head = draw.standard_normal((2, 9, 24)), 40 * draw.standard_normal((24, 29))
    arrays = (
        *(jnp.asarray(a, jnp.float32) for a in (x, head)),
        draw.integers(0, 29, (2, 9), np.int32),
    )
    graded = jax.jit(jax.value_and_grad(cross_entropy, (0, 1)), static_argnums=3)
    exact, found = (graded(*arrays, once) for once in (False, True))
    assert exact[0] > 1000 and error(found, exact) < 1e-6
    jitted = functools.partial(jax.jit, static_argnums=3)
    total, losses = jitted(cross_entropies)(*arrays, True)
    assert total == jitted(cross_entropy)(*arrays, True)
    assert losses.sum() == pytest.approx(float(total), rel=1e-6)
