"""The loss by chunks of tokens against that of all logits at once."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.models import losses as module
from bss.models.base import Head
from bss.models.losses import cross_entropies, cross_entropy

VOCAB, WIDTH = 50, 24
FILLED_UP = 128
graded = functools.partial(jax.value_and_grad, argnums=(0, 1))


def drawn(batch, length, dtype):
    draw = np.random.default_rng(0)
    x, head = draw.standard_normal((batch, length, WIDTH)), draw.standard_normal((WIDTH, VOCAB))
    targets = draw.integers(0, VOCAB, (batch, length), np.int32)
    return jnp.asarray(x, dtype), jnp.asarray(head, jnp.float32), targets


@pytest.fixture
def chunks_of(monkeypatch):
    """Lets a program hold the logits of a few tokens."""

    def limit(tokens):
        monkeypatch.setattr(module, "LOGITS_AT_ONCE", tokens * VOCAB)

    return limit


@pytest.mark.parametrize(
    ("length", "dtype", "tolerance"),
    [(16, "float32", 1e-5), (13, "float32", 1e-5), (16, "bfloat16", 1e-2)],
)
def test_chunks_change_neither_loss_nor_gradient(chunks_of, length, dtype, tolerance):
    """Also where no number of them divides the tokens; chunks are of 8."""
    arrays = drawn(3, length, dtype)
    exact = jax.jit(graded(cross_entropy))(arrays[0].astype(jnp.float32), *arrays[1:])
    chunks_of(9)
    found = jax.jit(lambda *arrays: graded(cross_entropy)(*arrays))(*arrays)
    alone = jax.jit(lambda *arrays: cross_entropy(*arrays))(*arrays)
    assert found[1][0].dtype == dtype and found[1][1].dtype == jnp.float32
    assert alone == pytest.approx(float(exact[0]), rel=tolerance)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        error = np.linalg.norm(np.asarray(a, np.float32) - b)
        assert error < tolerance * np.linalg.norm(b)


@pytest.mark.parametrize("tokens", [9, 1000])
@pytest.mark.parametrize("fused", [False, True])
def test_logits_in_bfloat16_are_rounded_and_their_sums_are_not(chunks_of, tokens, fused):
    x, head, targets = drawn(3, 16, "float32")
    logits = jax.lax.reduce_precision(x @ head, 8, 7)
    expected = -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).sum()
    exact = graded(cross_entropy)(x, head, targets)
    chunks_of(tokens)
    how = fused, Head("bfloat16")
    loss, gradients = jax.jit(lambda *arrays: graded(cross_entropy)(*arrays, *how))(
        x, head, targets
    )
    assert loss == pytest.approx(float(expected), rel=1e-6)
    assert loss == jax.jit(lambda *arrays: cross_entropies(*arrays, *how)[0])(x, head, targets)
    assert abs(float(loss - exact[0])) > 1e-6 * float(loss)
    for found, true in zip(gradients, exact[1], strict=True):
        assert found.dtype == jnp.float32
        assert np.linalg.norm(found - true) < 0.01 * np.linalg.norm(true)


def test_chunks_have_the_size_that_is_asked_for(chunks_of):
    x, head, targets = drawn(4, 16, "float32")
    chunks_of(8)
    for chunk, size in ((0, 8), (40 * VOCAB, 32)):
        loss = functools.partial(cross_entropy, settings=Head(chunk_logits=chunk))
        text = jax.jit(loss).lower(x, head, targets).as_text()
        assert f"tensor<{size}x{FILLED_UP}xf32>" in text


@pytest.mark.parametrize("chunk", [8, 1000])
def test_each_targets_loss_is_told_beside_the_same_sum(chunks_of, chunk):
    x, head, targets = drawn(3, 13, "float32")
    log = jax.nn.log_softmax(x @ head)
    expected = -jnp.take_along_axis(log, targets[..., None], axis=-1)[..., 0]
    chunks_of(chunk)
    total, losses = jax.jit(lambda *arrays: cross_entropies(*arrays))(x, head, targets)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert total == jax.jit(lambda *arrays: cross_entropy(*arrays))(x, head, targets)


def test_no_more_logits_than_a_chunks_are_ever_made(chunks_of):
    chunks_of(8)
    compiled = jax.jit(lambda *arrays: graded(cross_entropy)(*arrays)).lower(
        *drawn(3, 13, "float32")
    )
    text = compiled.compile().as_text() or ""
    made = re.findall(rf"f32\[(\d+),(?:{VOCAB}|{FILLED_UP})\]", text)
    assert {int(tokens) for tokens in made} - {WIDTH} == {8, 7}


def test_runs_side_by_side_have_each_its_own_loss(chunks_of):
    x, head, targets = drawn(3, 13, "float32")
    heads = jnp.stack([head, 2 * head])
    exact = jax.vmap(cross_entropy, (None, 0, None))(x, heads, targets)
    chunks_of(8)
    of_runs = jax.vmap(lambda h: jax.value_and_grad(cross_entropy, argnums=1)(x, h, targets))
    losses, gradients = jax.jit(of_runs)(heads)
    np.testing.assert_allclose(losses, exact, rtol=1e-5)
    assert gradients.shape == heads.shape
