"""The decoder-only transformer: flax nnx modules inside, pure functions of a dict outside.

Pre-norm blocks with RoPE (Su et al., 2104.09864; the halves of a head are rotated, as in
GPT-NeoX), grouped-query attention (Ainslie et al., 2305.13245), QK-norm (Dehghani et al.,
2302.05442), SwiGLU (Shazeer, 2002.05202) or squared ReLU (So et al., 2109.08668).

Standard parametrisation, initialised from plain (not truncated) normals:
matrices with std 1/sqrt(fan_in), divided by sqrt(2·num_layers) where they write to the residual
stream (GPT-2); an untied embedding with std 1/sqrt(d_model); whatever makes logits (the head, or
the tied matrix) with std 1/d_model, so that the initial loss is ln(vocab_size) to 1/(2·d_model)
untied, and close to it tied; norm scales are 1.

Past construction the rest of the package sees `params`: nested dicts of float32 arrays, layers
under "layer_0", "layer_1", ... or, with `scan_layers`, stacked on a leading axis under "layers".
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from bss.models.family import STACK, Params
from bss.models.transformer.config import TransformerConfig


def matmul(x, matrix, dtype=None):
    """Multiply the last axis of `x` by a matrix cast to its dtype; a result of `dtype`."""
    # XLA's CPU backend is 1.2 times slower on a left side of three axes than on one of two.
    flat = x.reshape(-1, x.shape[-1])
    product = jnp.matmul(flat, matrix.astype(x.dtype), preferred_element_type=dtype)
    return product.reshape(*x.shape[:-1], -1)


class Linear(nnx.Module):
    """A matrix, applied in the activations' dtype."""

    def __init__(self, fan_in: int, fan_out: int, std: float, rngs: nnx.Rngs):
        self.kernel = nnx.Param(std * jax.random.normal(rngs.params(), (fan_in, fan_out)))

    def __call__(self, x):
        """Last axis fan_in to fan_out."""
        return matmul(x, self.kernel[...])


class Norm(nnx.Module):
    """RMSNorm or LayerNorm over the last axis in float32, with a scale and no bias."""

    def __init__(self, kind: str, size: int):
        self.kind = kind
        self.scale = nnx.Param(jnp.ones(size))

    def __call__(self, x):
        """Same shape and dtype."""
        wide = x.astype(jnp.float32)
        if self.kind == "layer":
            wide = wide - wide.mean(-1, keepdims=True)
        inverse = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
        scale = jnp.expand_dims(self.scale[...], range(x.ndim - 1))
        return (wide * inverse * scale).astype(x.dtype)


def rope(x_BxTxHxD, theta: float):
    """Rotate each pair (i, i + D/2) of a head by position · theta^(-2i/D) (2104.09864, eq. 34)."""
    _, T, _, D = x_BxTxHxD.shape
    angles = np.arange(T)[:, None] * theta ** (-np.arange(0, D, 2) / D)
    cos, sin = (f(angles)[None, :, None, :].astype(np.float32) for f in (np.cos, np.sin))
    low, high = jnp.split(x_BxTxHxD.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return turned.astype(x_BxTxHxD.dtype)


def attend(q_BxTxHxD, k_BxTxKxD, v_BxTxKxD):
    """Causal softmax attention, in float32 between the products; H/K queries share a key head.

    Written for XLA's CPU backend: heads lead, the D-wide result is normalised instead of the
    T-wide weights, and the first half of the queries never meets the second half of the keys.
    """
    B, T, H, D = q_BxTxHxD.shape
    q_BxHxTxD, k_BxKxTxD, v_BxKxTxD = (
        x.transpose(0, 2, 1, 3) for x in (q_BxTxHxD, k_BxTxKxD, v_BxTxKxD)
    )
    q_BxKxGxTxD = q_BxHxTxD.reshape(B, k_BxKxTxD.shape[1], -1, T, D)
    spans = [(start, stop) for start, stop in ((0, T // 2), (T // 2, T)) if start < stop]
    mixed_BxKxGxTxD = jnp.concatenate(
        [
            _attend_last(
                q_BxKxGxTxD[..., start:stop, :], k_BxKxTxD[..., :stop, :], v_BxKxTxD[..., :stop, :]
            )
            for start, stop in spans
        ],
        axis=3,
    )
    return mixed_BxKxGxTxD.reshape(B, H, T, D).transpose(0, 2, 1, 3).astype(q_BxTxHxD.dtype)


def _attend_last(q_BxKxGxTxD, k_BxKxSxD, v_BxKxSxD):
    """The queries of the last T of S positions, each over the keys up to its own position."""
    B, K, G, T, D = q_BxKxGxTxD.shape
    S = k_BxKxSxD.shape[2]
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    scores_BxKxGTxS = product("bkqd,bksd->bkqs", q_BxKxGxTxD.reshape(B, K, -1, D), k_BxKxSxD)
    causal_GTxS = np.tile(np.tril(np.ones((T, S), bool), S - T), (G, 1))
    scores_BxKxGTxS = jnp.where(causal_GTxS[None, None], scores_BxKxGTxS, -1e30)
    # The shift cancels in the quotient, so its gradient is zero.
    peak_BxKxGTx1 = jax.lax.stop_gradient(scores_BxKxGTxS.max(axis=-1, keepdims=True))
    weights_BxKxGTxS = jnp.exp(scores_BxKxGTxS - peak_BxKxGTx1)
    mixed_BxKxGTxD = product("bkqs,bksd->bkqd", weights_BxKxGTxS.astype(v_BxKxSxD.dtype), v_BxKxSxD)
    mixed_BxKxGTxD = mixed_BxKxGTxD / weights_BxKxGTxS.sum(axis=-1, keepdims=True)
    return mixed_BxKxGTxD.reshape(B, K, G, T, D)


class Attention(nnx.Module):
    """Causal self-attention; K key heads, each shared by G query heads."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs):
        self.config = config
        width, kv_width = config.d_model, config.kv_heads * config.head_dim
        std = width**-0.5
        self.query = Linear(width, width, std, rngs)
        self.key = Linear(width, kv_width, std, rngs)
        self.value = Linear(width, kv_width, std, rngs)
        self.output = Linear(width, width, std * (2 * config.num_layers) ** -0.5, rngs)
        if config.qk_norm:
            self.query_norm = Norm(config.norm, config.head_dim)
            self.key_norm = Norm(config.norm, config.head_dim)

    def __call__(self, x_BxTxM):
        """What the attention adds to the residual stream."""
        B, T, _ = x_BxTxM.shape
        K, D = self.config.kv_heads, self.config.head_dim
        q_BxTxHxD = self.query(x_BxTxM).reshape(B, T, -1, D)
        k_BxTxKxD = self.key(x_BxTxM).reshape(B, T, K, D)
        v_BxTxKxD = self.value(x_BxTxM).reshape(B, T, K, D)
        if self.config.qk_norm:
            q_BxTxHxD, k_BxTxKxD = self.query_norm(q_BxTxHxD), self.key_norm(k_BxTxKxD)
        theta = self.config.rope_theta
        q_BxTxHxD, k_BxTxKxD = rope(q_BxTxHxD, theta) * D**-0.5, rope(k_BxTxKxD, theta)
        return self.output(attend(q_BxTxHxD, k_BxTxKxD, v_BxTxKxD).reshape(B, T, -1))


class MLP(nnx.Module):
    """Two matrices around a nonlinearity, or SwiGLU's three."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs):
        self.activation = config.activation
        width, hidden = config.d_model, config.d_ff
        self.up = Linear(width, hidden, width**-0.5, rngs)
        if config.activation == "swiglu":
            self.gate = Linear(width, hidden, width**-0.5, rngs)
        self.down = Linear(hidden, width, (2 * config.num_layers * hidden) ** -0.5, rngs)

    def __call__(self, x):
        """What the MLP adds to the residual stream."""
        hidden = self.up(x)
        if self.activation == "swiglu":
            hidden = jax.nn.silu(self.gate(x)) * hidden
        elif self.activation == "gelu":
            hidden = jax.nn.gelu(hidden, approximate=False)
        else:
            hidden = jnp.square(jax.nn.relu(hidden))
        return self.down(hidden)


class Block(nnx.Module):
    """One residual block."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs):
        self.attention_norm = Norm(config.norm, config.d_model)
        self.attention = Attention(config, rngs)
        self.mlp_norm = Norm(config.norm, config.d_model)
        self.mlp = MLP(config, rngs)

    def __call__(self, x_BxTxM):
        """The residual stream after this block."""
        x_BxTxM = x_BxTxM + self.attention(self.attention_norm(x_BxTxM))
        return x_BxTxM + self.mlp(self.mlp_norm(x_BxTxM))


class Transformer(nnx.Module):
    """Tokens to float32 logits."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs):
        self.config = config
        width, vocab = config.d_model, config.vocab_size
        std = 1 / width if config.tied else width**-0.5
        self.embedding = nnx.Param(std * jax.random.normal(rngs.params(), (vocab, width)))
        if not config.tied:
            self.head = Linear(width, vocab, 1 / width, rngs)
        if config.scan_layers:
            keys = jax.random.split(rngs.params(), config.num_layers)
            self.layers = nnx.vmap(lambda key: Block(config, nnx.Rngs(params=key)))(keys)
        else:
            for layer in range(config.num_layers):
                setattr(self, f"layer_{layer}", Block(config, rngs))
        self.final_norm = Norm(config.norm, width)

    def __call__(self, tokens_BxT):
        """Logits (B, T, vocab_size)."""
        dtype = jnp.dtype(self.config.dtype)
        # Cast behind the look-up, whose gradient is a sum too long for bfloat16.
        x_BxTxM = self._blocks(self.embedding[...][tokens_BxT].astype(dtype))
        head_MxV = self.embedding[...].T if self.config.tied else self.head.kernel[...]
        return matmul(self.final_norm(x_BxTxM), head_MxV, jnp.float32)

    def _blocks(self, x_BxTxM):
        def step(x_BxTxM, block_state):
            return nnx.merge(graphdef, block_state)(x_BxTxM), None

        if self.config.scan_layers:
            graphdef, stacked = nnx.split(self.layers)
            step = jax.checkpoint(step, prevent_cse=False) if self.config.remat else step
            return jax.lax.scan(step, x_BxTxM, stacked)[0]
        step = jax.checkpoint(step) if self.config.remat else step
        for layer in range(self.config.num_layers):
            graphdef, state = nnx.split(getattr(self, f"layer_{layer}"))
            x_BxTxM, _ = step(x_BxTxM, state)
        return x_BxTxM


@functools.cache
def _graphdef(config: TransformerConfig) -> nnx.GraphDef:
    return nnx.split(nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0))))[0]


@functools.partial(jax.jit, static_argnums=0)
def _init(config: TransformerConfig, key: jax.Array) -> Params:
    return nnx.to_pure_dict(nnx.state(Transformer(config, nnx.Rngs(params=key))))


def init(config: TransformerConfig, seed: int) -> Params:
    """Fresh parameters: nested dicts of float32 arrays, a pure function of config and seed."""
    return _init(config, jax.random.key(seed))


def apply(config: TransformerConfig, params: Params, tokens_BxT) -> jax.Array:
    """Logits of the next token, float32, shape (B, T, vocab_size), for integer tokens (B, T)."""
    return nnx.merge(_graphdef(config), params)(tokens_BxT)


def loss_sum(config: TransformerConfig, params: Params, sequences_BxT1) -> jax.Array:
    """Cross-entropy of the next token in nats, summed over the B·T targets, a float32 scalar.

    Of integer tokens (B, T + 1) all but the last are inputs, all but the first are targets.
    """
    targets_BxT = sequences_BxT1[:, 1:]
    logits_BxTxV = apply(config, params, sequences_BxT1[:, :-1])
    picked_BxT = jnp.take_along_axis(logits_BxTxV, targets_BxT[..., None], axis=-1)[..., 0]
    return jnp.sum(jax.nn.logsumexp(logits_BxTxV, axis=-1) - picked_BxT)


_NAMES = {
    "embedding": ("vocab", "embed"),
    "head": ("embed", "vocab"),
    "query": ("embed", "heads"),
    "key": ("embed", "heads"),
    "value": ("embed", "heads"),
    "output": ("heads", "embed"),
    "up": ("embed", "mlp"),
    "gate": ("embed", "mlp"),
    "down": ("mlp", "embed"),
}


def partition_names(params: Params) -> Params:
    """Names of the axes of every parameter; see `ModelFamily`."""

    def names(path: tuple, _: jax.Array) -> tuple[str, ...]:
        keys = [entry.key for entry in path]
        stack = (STACK,) if keys[0] == "layers" else ()
        own = "embedding" if keys[-1] == "embedding" else keys[-2]
        return (*stack, *_NAMES.get(own, ("norm",)))

    return jax.tree.map_with_path(names, params)
