"""The rival in JAX: the same model by flax and optax, and a jitted step of one batch, as in guides.

Products, norms and attention are the libraries' own; nothing is accumulated and nothing traced but
parameters, moments and tokens.
"""

import math
from itertools import cycle

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.race import Turn
from benchmarks.step.shapes import BETAS, CLIP, DECAY, EPS, LR, Shape, batches
from bss.models.transformer import TransformerConfig


class Block(nnx.Module):
    """One residual block."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs):
        self.config = config
        dtype = jnp.dtype(config.dtype)
        width = config.d_model
        hidden = config.d_ff
        deep = (2 * config.num_layers) ** -0.5

        def linear(fan_in: int, fan_out: int, scale: float = 1.0) -> nnx.Linear:
            init = nnx.initializers.normal(scale * fan_in**-0.5)
            how = {"use_bias": False, "dtype": dtype, "kernel_init": init, "rngs": rngs}
            return nnx.Linear(fan_in, fan_out, **how)

        self.norms = nnx.List([_norm(config, width, rngs) for _ in range(2)])
        self.head_norms = nnx.List([_norm(config, config.head_width, rngs) for _ in range(2)])
        self.query = linear(width, width)
        self.key = linear(width, width)
        self.value = linear(width, width)
        self.output = linear(width, width, deep)
        self.up = linear(width, hidden)
        self.down = linear(hidden, width, deep)

    def __call__(self, x_BxTxM):
        """Return the residual stream after this block."""
        B, T, M = x_BxTxM.shape
        normed = self.norms[0](x_BxTxM)
        heads = (B, T, -1, self.config.head_width)
        query_norm, key_norm = self.head_norms
        q = query_norm(self.query(normed).reshape(heads))
        k = key_norm(self.key(normed).reshape(heads))
        v = self.value(normed).reshape(heads)
        q = _rope(q, self.config.rope_theta)
        k = _rope(k, self.config.rope_theta)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x_BxTxM = x_BxTxM + self.output(mixed.reshape(B, T, M))
        hidden = self.up(self.norms[1](x_BxTxM))
        gelu = self.config.activation == "gelu"
        hidden = nnx.gelu(hidden, approximate=False) if gelu else jnp.square(nnx.relu(hidden))
        return x_BxTxM + self.down(hidden)


def _norm(config: TransformerConfig, size: int, rngs: nnx.Rngs) -> nnx.Module:
    dtype = jnp.dtype(config.dtype)
    if config.norm == "rms":
        return nnx.RMSNorm(size, dtype=dtype, rngs=rngs)
    return nnx.LayerNorm(size, use_bias=False, dtype=dtype, rngs=rngs)


def _rope(x_BxTxHxD, theta: float):
    _, T, _, D = x_BxTxHxD.shape
    angles_TxD = jnp.outer(jnp.arange(T), theta ** (-jnp.arange(0, D, 2) / D))
    cos = jnp.cos(angles_TxD)[None, :, None]
    sin = jnp.sin(angles_TxD)[None, :, None]
    low, high = jnp.split(x_BxTxHxD, 2, axis=-1)
    turned = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return turned.astype(x_BxTxHxD.dtype)


class Transformer(nnx.Module):
    """Tokens to logits."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs):
        width = config.d_model
        vocab = config.vocab_size
        dtype = jnp.dtype(config.dtype)
        init = nnx.initializers.normal
        self.embedding = nnx.Embed(
            vocab, width, dtype=dtype, embedding_init=init(width**-0.5), rngs=rngs
        )
        self.blocks = nnx.List([Block(config, rngs) for _ in range(config.num_layers)])
        self.norm = _norm(config, width, rngs)
        self.head = nnx.Linear(
            width, vocab, use_bias=False, dtype=dtype, kernel_init=init(1 / width), rngs=rngs
        )

    def __call__(self, tokens_BxT):
        """Logits, float32 [B, T, vocab]."""
        x_BxTxM = self.embedding(tokens_BxT)
        for block in self.blocks:
            x_BxTxM = block(x_BxTxM)
        return self.head(self.norm(x_BxTxM)).astype(jnp.float32)


def loss_of(model: Transformer, sequences_BxT1: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next token, in nats."""
    logits = model(sequences_BxT1[:, :-1])
    targets = sequences_BxT1[:, 1:]
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def plain(**fields) -> Turn:
    """Return a jitted step whose state is donated."""
    shape = Shape(**fields)
    config = shape.config
    model = jax.jit(lambda: nnx.split(Transformer(config, nnx.Rngs(0))))
    graphdef, params = model()
    adamw = optax.adamw(
        LR, *BETAS, EPS, weight_decay=DECAY, mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p)
    )
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), adamw)
    moments = jax.jit(optimizer.init)(params)
    sequences = cycle([jax.device_put(one) for one in batches(shape, config.vocab_size)])

    @jax.jit(donate_argnums=(0, 1))
    def step(params, moments, sequences):
        loss, gradients = jax.value_and_grad(
            lambda params: loss_of(nnx.merge(graphdef, params), sequences)
        )(params)
        updates, moments = optimizer.update(gradients, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    loss: jax.Array | float = math.nan

    def turn(steps: int) -> float:
        nonlocal params, moments, loss
        for _ in range(steps):
            params, moments, loss = step(params, moments, next(sequences))
        jax.block_until_ready(params)
        return float(loss)

    return turn
