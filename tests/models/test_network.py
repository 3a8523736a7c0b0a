import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.models import losses
from bss.models.attention import reference
from bss.models.network import init, logits, loss_and_balance
from bss.models.parts import rope
from bss.models.transformer import TransformerConfig

TINY = TransformerConfig(vocab_size=29, num_layers=2, d_model=24, num_heads=4, d_ff=40)
VARIANTS = {
    "default": TINY,
    "modern": dataclasses.replace(TINY, activation="swiglu", num_kv_heads=2, tied=True),
    "published": dataclasses.replace(
        TINY, activation="gelu", norm="layer", scan_layers=True, remat=True, qk_norm=False
    ),
}
each_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
default_or_slow = pytest.mark.parametrize(
    "config",
    [
        pytest.param(config, id=name, marks=[] if name == "default" else pytest.mark.slow)
        for name, config in VARIANTS.items()
    ],
)


@functools.cache
def parameters(config, seed=0):
    """Initial values moved by noise, so that no scale is 1 and no two layers are alike."""
    leaves, tree = jax.tree.flatten(init(config, seed))
    rng = np.random.default_rng(seed)
    moved = [
        np.asarray(leaf) + 0.1 * rng.standard_normal(leaf.shape, np.float32) for leaf in leaves
    ]
    return jax.tree.unflatten(tree, moved)


def sequences(config, batch=3, length=12):
    return np.random.default_rng(1).integers(0, config.vocab_size, (batch, length), np.int32)


# Compiling is nearly all of the time here, so the compiler is told not to optimise.
quick_jit = functools.partial(
    jax.jit,
    static_argnums=0,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)


@quick_jit
def logits_of(config, params, tokens):
    """Of every token's next one; a sequence's last token is no input."""
    return logits(config, params, jnp.pad(tokens, ((0, 0), (0, 1))))


def loss_sum(config, params, tokens):
    return loss_and_balance(config, params, tokens)[0]


loss_and_gradient = quick_jit(jax.value_and_grad(loss_sum, argnums=1))
assert_trees_close = functools.partial(
    jax.tree.map, functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
)


@default_or_slow
def test_a_token_changes_its_own_logits_and_later_ones_only(config):
    params, tokens = parameters(config), sequences(config)
    before = logits_of(config, params, tokens)
    changed = tokens.copy()
    changed[:, 5] = (changed[:, 5] + 1) % config.vocab_size
    difference = np.abs(logits_of(config, params, changed) - before).max(axis=(0, 2))
    np.testing.assert_array_equal(difference[:5], 0)
    assert (difference[5:] > 1e-4).all()


def test_rope_scores_depend_on_the_distance_only():
    rng = np.random.default_rng(0)
    q_D, k_D = rng.standard_normal((2, 16), np.float32)
    q_T, k_T = (rope(jnp.broadcast_to(x, (1, 9, 1, 16)), 100.0)[0, :, 0] for x in (q_D, k_D))
    scores = np.asarray(q_T @ k_T.T)
    for distance in range(-8, 9):
        diagonal = np.diagonal(scores, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-5)
    assert abs(scores[0, 0] - scores[3, 0]) > 0.1
    np.testing.assert_allclose(scores[0, 0], q_D @ k_D, rtol=1e-5)


def test_rope_turns_pairs_by_the_written_angles():
    turned = np.asarray(rope(jnp.ones((1, 3, 1, 4)), 100.0))[0, :, 0]
    for t in range(3):
        for pair, angle in enumerate((t, t / 10)):
            expected = (np.cos(angle) - np.sin(angle), np.sin(angle) + np.cos(angle))
            np.testing.assert_allclose(turned[t, [pair, pair + 2]], expected, rtol=1e-5)


def test_grouped_queries_equal_all_heads_with_keys_repeated():
    grouped = dataclasses.replace(TINY, num_kv_heads=2)
    params = parameters(grouped)

    def repeat(kernel):
        by_head = kernel.reshape(kernel.shape[0], 2, TINY.head_width)
        return jnp.repeat(by_head, 2, axis=1).reshape(kernel.shape[0], -1)

    full = jax.tree.map_with_path(
        lambda path, leaf: repeat(leaf) if path[-2:][0].key in ("key", "value") else leaf, params
    )
    tokens = sequences(TINY)
    np.testing.assert_allclose(
        logits_of(grouped, params, tokens), logits_of(TINY, full, tokens), atol=1e-5
    )


@pytest.mark.parametrize(("length", "key_heads"), [(1, 4), (2, 1), (7, 2)])
def test_attention_equals_the_textbook_one(length, key_heads):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, length, h, 6), np.float32) for h in (4, *[key_heads] * 2))
    expected = np.zeros_like(q)
    for b, t, h in np.ndindex(2, length, 4):
        shared = h // (4 // key_heads)
        weights = np.exp(k[b, : t + 1, shared] @ q[b, t, h])
        expected[b, t, h] = weights @ v[b, : t + 1, shared] / weights.sum()
    np.testing.assert_allclose(jax.jit(reference)(q, k, v), expected, atol=1e-5)


def stack(params):
    layers = [params[f"layer_{i}"] for i in range(2)]
    rest = {name: leaf for name, leaf in params.items() if not name.startswith("layer_")}
    return rest | {"layers": jax.tree.map(lambda *leaves: np.stack(leaves), *layers)}


@pytest.mark.slow
@pytest.mark.parametrize(("scan", "remat"), [(True, False), (True, True)])
def test_scan_and_remat_change_neither_loss_nor_gradient(scan, remat):
    plain = VARIANTS["modern"]
    other = dataclasses.replace(plain, scan_layers=scan, remat=remat)
    params, tokens = parameters(plain), sequences(plain)
    arrange = stack if scan else lambda tree: tree
    loss, gradient = loss_and_gradient(plain, params, tokens)
    expected_shapes = jax.eval_shape(lambda: init(other, 0))
    assert jax.tree.map(np.shape, arrange(params)) == jax.tree.map(np.shape, expected_shapes)
    assert_trees_close(loss_and_gradient(other, arrange(params), tokens), (loss, arrange(gradient)))


@pytest.mark.slow
def test_bfloat16_is_close_to_float32():
    config = VARIANTS["modern"]
    half = dataclasses.replace(config, dtype="bfloat16")
    params, tokens = parameters(config), sequences(config)
    logits = logits_of(half, params, tokens)
    assert logits.dtype == jnp.float32
    exact = np.asarray(logits_of(config, params, tokens))
    error = np.sqrt(np.mean((logits - exact) ** 2)) / exact.std()
    assert 1e-4 < error < 0.03
    shapes = jax.eval_shape(lambda: init(half, 0))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(shapes))


@default_or_slow
def test_loss_is_the_cross_entropy_of_the_next_tokens(config):
    params, tokens = parameters(config), sequences(config)
    logits = np.asarray(logits_of(config, params, tokens), np.float64)[:, :-1]
    total = 0.0
    for row, sequence in zip(logits, tokens, strict=True):
        for scores, target in zip(row, sequence[1:], strict=True):
            total += np.log(np.exp(scores).sum()) - scores[target]
    loss, _ = loss_and_gradient(config, params, tokens)
    assert loss == pytest.approx(total, rel=1e-5)


def test_loss_survives_large_logits():
    params = parameters(TINY)
    params = params | {"head": {"kernel": params["head"]["kernel"] * 1e4}}
    loss, gradient = loss_and_gradient(TINY, params, sequences(TINY))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((loss, gradient)))


@pytest.mark.slow
@pytest.mark.parametrize(("tied", "slack"), [(False, 0.03), (True, 0.1)])
def test_initial_loss_is_that_of_the_uniform_guess(tied, slack):
    config = TransformerConfig(
        vocab_size=257, num_layers=2, d_model=64, num_heads=4, d_ff=256, tied=tied
    )
    tokens = sequences(config, batch=8, length=65)
    loss = quick_jit(loss_sum)(config, init(config, 0), tokens) / (8 * 64)
    assert loss == pytest.approx(np.log(257), abs=slack)


@default_or_slow
def test_gradient_equals_finite_differences(config):
    params, tokens = parameters(config), sequences(config)
    _, gradient = loss_and_gradient(config, params, tokens)
    rng = np.random.default_rng(2)
    step = 1e-2
    for name in params:  # one random direction in each part of the model
        direction = jax.tree.map(
            lambda leaf: rng.standard_normal(leaf.shape, np.float32) / leaf.size**0.5,
            params[name],
        )

        def loss_at(distance, name=name, direction=direction):
            moved = jax.tree.map(lambda p, d: p + distance * d, params[name], direction)
            return float(loss_and_gradient(config, params | {name: moved}, tokens)[0])

        slope = (loss_at(step) - loss_at(-step)) / (2 * step)
        products = jax.tree.map(lambda g, d: np.sum(g * d), gradient[name], direction)
        assert slope == pytest.approx(float(sum(jax.tree.leaves(products))), rel=0.01, abs=0.02)


def test_initialisation_is_a_pure_function_of_the_seed():
    first, again, other = (init(TINY, seed)["head"]["kernel"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0


@pytest.mark.slow
def test_initial_spreads_are_the_documented_ones():
    config = TransformerConfig(
        vocab_size=500, num_layers=2, d_model=64, num_heads=4, d_ff=256, scan_layers=True
    )
    params = init(config, 0)
    block = params["layers"]
    expected = [
        (params["embedding"], 1 / 8),
        (params["head"]["kernel"], 1 / 64),
        (block["attention"]["query"]["kernel"], 1 / 8),
        (block["attention"]["output"]["kernel"], 1 / 16),
        (block["mlp"]["up"]["kernel"], 1 / 8),
        (block["mlp"]["down"]["kernel"], 1 / 32),
    ]
    for kernel, std in expected:
        assert kernel.std() == pytest.approx(std, rel=0.05)
    first, second = block["mlp"]["up"]["kernel"]
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05


@each_variant
def test_decay_takes_matrices_and_leaves_norm_scales(config):
    params = init(config, 0)
    mask = config.decay_mask(params)
    assert jax.tree.structure(mask) == jax.tree.structure(params)
    for path, decayed in jax.tree.leaves_with_path(mask):
        assert decayed == (not path[-2].key.endswith("norm") if len(path) > 1 else True)
    assert mask["embedding"]


@each_variant
def test_every_axis_has_a_name_and_matrices_are_those_of_the_blocks(config):
    params = init(config, 0)
    names = config.partition_names(params)
    ranks = jax.tree.map(lambda x: x.ndim, params)
    assert jax.tree.map(len, names, is_leaf=lambda x: isinstance(x, tuple)) == ranks
    for path, is_matrix in jax.tree.leaves_with_path(config.matrices(params)):
        assert is_matrix == (path[-1].key == "kernel" and path[0].key != "head")


def test_gradients_accumulate_inside_a_loop_with_a_traced_count():
    params, tokens = parameters(TINY), sequences(TINY)

    @jax.jit
    def accumulated(params, buckets_NxBxT1, count):
        def add(i, total):
            gradient = jax.grad(functools.partial(loss_sum, TINY))(params, buckets_NxBxT1[i])
            return jax.tree.map(jnp.add, total, gradient)

        return jax.lax.fori_loop(0, count, add, jax.tree.map(jnp.zeros_like, params))

    _, whole = loss_and_gradient(TINY, params, tokens)
    assert_trees_close(accumulated(params, jnp.asarray(tokens[:, None]), 3), whole)


@pytest.mark.parametrize(("rows", "fan_in", "fan_out"), [(512, 24, 8), (512, 8, 24), (16, 24, 8)])
def test_gradients_of_a_product_are_those_of_plain_matmul(rows, fan_in, fan_out):
    """Whichever side CPUs are fast at: of many rows and few, of wide inputs and narrow ones."""
    draw = np.random.default_rng(0)
    x, w, y = (
        draw.normal(size=shape).astype(np.float32)
        for shape in ((rows, fan_in), (fan_in, fan_out), (rows, fan_out))
    )
    ours = jax.grad(lambda x, w: jnp.sum(losses.matmul(x, w) * y), (0, 1))(x, w)
    for one, plain in zip(ours, (y @ w.T, x.T @ y), strict=True):
        np.testing.assert_allclose(one, plain, rtol=1e-5, atol=1e-4)
