"""A mixture of experts: what it computes, whatever the load, and what balances the load."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from bss.errors import InputError
from bss.models.base import Compute
from bss.models.moe import Blocks, Experts, grouped
from bss.models.sizes import model_of
from bss.models.transformer import MixtureConfig, block_shape

TINY = MixtureConfig(29, 2, 16, 2, 24, num_experts=4, top_k=2)
SWIGLU = replace(TINY, activation="swiglu")


def made(config, sharp=1.0):
    """Experts and what they are given; a sharp router sends tokens to few of them."""
    experts = Experts(config, nnx.Rngs(0))
    experts.router.kernel[...] *= sharp
    return experts, jax.random.normal(jax.random.key(1), (3, 10, config.d_model))


def by_hand(experts, x, chosen_of):
    """Every expert on every token, weighed by its share among those chosen."""
    config, x = experts.config, np.asarray(x, np.float64)
    router, up, down = (
        np.asarray(one.kernel[...], np.float64)
        for one in (experts.router, experts.up, experts.down)
    )
    shares, out = np.exp(x @ router), np.zeros(x.shape)
    shares /= shares.sum(axis=-1, keepdims=True)
    for place in np.ndindex(x.shape[:2]):
        chosen = chosen_of(shares[place])
        for e in chosen:
            hidden = x[place] @ up[e]
            if config.activation == "swiglu":
                gate = x[place] @ np.asarray(experts.gate.kernel[e], np.float64)
                hidden = gate / (1 + np.exp(-gate)) * hidden
            else:
                hidden = np.maximum(hidden, 0) ** 2
            out[place] += shares[(*place, e)] / shares[place][chosen].sum() * hidden @ down[e]
    return out


@pytest.mark.parametrize("config", [TINY, SWIGLU])
@pytest.mark.parametrize("sharp", [1.0, 30.0])
def test_no_token_is_dropped_whatever_the_load(config, sharp):
    experts, x = made(config, sharp)
    out, _ = jax.jit(lambda x: experts(x))(x)
    expected = by_hand(experts, x, lambda shares: np.argsort(-shares)[:2])
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.slow
def test_all_experts_chosen_are_a_dense_layer():
    config = replace(TINY, top_k=4)
    experts, x = made(config)
    shares = jax.nn.softmax(x @ experts.router.kernel[...], axis=-1)
    hidden = jnp.square(jax.nn.relu(jnp.einsum("btm,emf->btef", x, experts.up.kernel[...])))
    dense = jnp.einsum("btef,efm,bte->btm", hidden, experts.down.kernel[...], shares)
    np.testing.assert_allclose(experts(x)[0], dense, atol=1e-5)


@pytest.mark.slow
def test_equal_experts_are_one_mlp():
    """Also in their gradients, which the experts of a token share by its weights."""
    experts, x = made(TINY)
    for stack in (experts.up, experts.down):
        stack.kernel[...] = jnp.broadcast_to(stack.kernel[...][:1], stack.kernel.shape)
    up, down = experts.up.kernel[...][0], experts.down.kernel[...][0]

    def dense(x):
        return jnp.square(jax.nn.relu(x @ up)) @ down

    np.testing.assert_allclose(experts(x)[0], dense(x), atol=1e-5)
    weighed = jnp.cos(jnp.arange(x.size)).reshape(x.shape)
    ours, theirs = (
        jax.jit(jax.grad(lambda x, f=f: jnp.sum(f(x) * weighed)))(x)
        for f in (lambda x: experts(x)[0], dense)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_balance_is_one_at_equal_loads_and_grows_with_the_most_loaded():
    experts, x = made(TINY, sharp=0.0)
    assert experts(x)[1] == pytest.approx(3 * 10)
    experts, x = made(TINY, sharp=30.0)
    assert experts(jnp.ones_like(x))[1] > 1.8 * 3 * 10  # all to two of four: 2 to each target


@pytest.mark.slow
def test_the_reported_loss_is_without_balance_and_sequences_add_up():
    one, tokens = replace(TINY, num_layers=1), jax.random.randint(jax.random.key(2), (4, 13), 0, 29)
    params, loss = one.init(0), jax.jit(one.loss)
    whole, besides = loss(params, tokens)
    parts = [loss(params, row[None]) for row in tokens]
    assert whole == pytest.approx(sum(float(loss) for loss, _ in parts), rel=1e-5)
    of_parts = sum(float(one["balance"]) for _, one in parts)
    assert float(besides["balance"]) == pytest.approx(of_parts, rel=1e-5)
    assert of_parts > 0.01 * 4 * 12  # the weight, all targets: 1 or more of each
    unweighed, none = jax.jit(replace(one, balance=0.0).loss)(params, tokens)
    assert (float(unweighed), float(none["balance"])) == (float(whole), 0)
    losses = jax.jit(one.target_losses_fn(Compute()))(params, tokens)
    assert float(losses[0]) == pytest.approx(float(whole), rel=1e-6)


@pytest.mark.slow
def test_stacked_layers_and_remat_change_nothing():
    other = replace(TINY, scan_layers=True, remat=True)
    params, tokens = TINY.init(0), jax.random.randint(jax.random.key(2), (2, 9), 0, 29)
    stacked = {name: leaf for name, leaf in params.items() if not name.startswith("layer_")}
    stacked["layers"] = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(params[f"layer_{i}"] for i in range(2))
    )
    one, besides = jax.jit(TINY.loss)(params, tokens)
    same, same_besides = jax.jit(other.loss)(stacked, tokens)
    assert float(one) == pytest.approx(float(same), rel=1e-6)
    assert float(besides["balance"]) == pytest.approx(float(same_besides["balance"]), rel=1e-6)


@pytest.mark.parametrize(
    ("experts", "chosen"),
    [
        (3, [1] * 40),
        pytest.param(16, np.random.default_rng(1).integers(0, 16, 512), marks=pytest.mark.slow),
    ],
)
def test_blocks_are_the_ragged_product(experts, chosen):
    """With its gradients, and as some runs side by side."""
    chosen = jnp.asarray(chosen)
    keys = jax.random.split(jax.random.key(0))
    rows = jax.random.normal(keys[0], (2, len(chosen), 3))
    matrices = jax.random.normal(keys[1], (2, experts, 3, 5))

    def ours(rows, matrices):
        blocks = Blocks.of(chosen, experts)
        return blocks.undo(grouped(blocks.rows(rows), matrices, blocks.expert_n))

    def ragged(rows, matrices):
        order = jnp.argsort(chosen)
        sizes = jnp.bincount(chosen, length=experts)
        return jax.lax.ragged_dot(rows[order], matrices, sizes)[jnp.argsort(order)]

    def graded(product):
        return jax.value_and_grad(lambda *x: jnp.sum(jnp.sin(product(*x))), (0, 1))

    together = jax.jit(jax.vmap(graded(ours)))(rows, matrices)
    for run in range(2):
        expected = graded(ragged)(rows[run], matrices[run])
        jax.tree.map(
            lambda a, b, run=run: np.testing.assert_allclose(a[run], b, rtol=1e-4, atol=1e-4),
            together,
            expected,
        )


@pytest.mark.slow
def test_the_gradients_of_blocks_are_summed_in_float32():
    """Of a crowded expert they are many, and bfloat16 would stop growing."""
    blocks = Blocks.of(jnp.full(4096, 3), 64)
    rows = jnp.ones((4096, 2), jnp.bfloat16)

    def summed(matrices):
        return grouped(blocks.rows(rows), matrices, blocks.expert_n).astype(jnp.float32).sum()

    matrices = jnp.ones((64, 2, 3), jnp.bfloat16)
    program = str(jax.make_jaxpr(jax.grad(summed))(matrices))
    assert re.findall(r"(\w+)\[64,2,3\] = scatter-add", program) == ["f32"]
    np.testing.assert_array_equal(jax.grad(summed)(matrices)[3].astype(float), 4096)


@pytest.mark.parametrize("experts", [1, 8, 128])
@pytest.mark.parametrize("rows", [1, 100, 4096, 100_000])
def test_blocks_hold_every_load_and_waste_at_most_half(rows, experts):
    blocks, size = block_shape(rows, experts)
    draw = np.random.default_rng(0)
    for crowd in (1, experts // 2, experts):
        loads = np.bincount(draw.integers(0, max(crowd, 1), rows), minlength=experts)
        assert sum(-(-loads // size)) <= blocks
    assert blocks * size <= 1.5 * rows or rows < 16 * experts


def test_names_of_axes_and_matrices():
    params = jax.eval_shape(partial(replace(TINY, scan_layers=True).init, 0))
    names = TINY.partition_names(params)["layers"]["mlp"]
    assert names["up"]["kernel"] == ("stack", "stack", "embed", "mlp")
    assert names["router"]["kernel"] == ("stack", "embed", "experts")
    assert TINY.split_axes(params)["layers"]["mlp"]["down"]["kernel"] == -2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"top_k": 5}, "top_k=5: expected at most the num_experts=4"),
        ({"top_k": 0}, "top_k=0: expected a positive integer"),
        ({"num_experts": 2.0}, "num_experts=2.0: expected a positive integer"),
        ({"balance": -1.0}, "balance=-1.0: expected 0, or a positive number"),
    ],
)
def test_bad_input_is_one_line(change, told):
    with pytest.raises(InputError, match=told) as error:
        replace(TINY, **change)
    assert "\n" not in str(error.value)


def test_a_mixture_is_written_as_other_models():
    group = {"family": "mixture", "name": "2x128", "d_ff": 256, "num_experts": 4}
    model = model_of(group, 300)
    assert (model.label, model.vocab_size) == ("2x128-4e2", 300)
    assert model_of("qwen3-30B-A3B").label == "48x2048-128e8"
