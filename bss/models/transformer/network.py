"""The decoder-only transformer: flax nnx modules inside, pure functions of a dict outside.

Pre-norm blocks with RoPE (Su et al., 2104.09864; the halves of a head are rotated, as in
GPT-NeoX), grouped-query attention (Ainslie et al., 2305.13245), QK-norm (Dehghani et al.,
2302.05442), SwiGLU (Shazeer, 2002.05202) or squared ReLU (So et al., 2109.08668).

Standard parametrisation, which another one multiplies (`parametrization`), initialised from plain
(not truncated) normals: matrices with std 1/sqrt(fan_in), divided by sqrt(2·num_layers) where they
write to the residual stream (GPT-2); an untied embedding with std 1/sqrt(d_model); whatever makes
logits (the head, or the tied matrix) with std 1/d_model, so that the initial loss is ln(vocab_size)
to 1/(2·d_model) untied, and close to it tied; norm scales are 1.

Past construction the rest of the package sees `params`: nested dicts of float32 arrays, layers
under "layer_0", "layer_1", ... or, with `scan_layers`, stacked on a leading axis under "layers".
"""

import functools
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from bss.models.family import (
    ONE_BY_ONE,
    STACK,
    Gather,
    Keep,
    Layers,
    Params,
    as_it_is,
    each_of,
    own_axes,
)
from bss.models.transformer.attention import KERNELS, Kernel
from bss.models.transformer.cross_entropy import cross_entropies, cross_entropy
from bss.models.transformer.layers import Linear, Norm, matmul
from bss.models.transformer.one_pass import turned, waves
from bss.models.transformer.shape import Shape


def rope(x_BxTxHxD, theta: float):
    """Rotate each pair (i, i + D/2) of a head by position · theta^(-2i/D) (2104.09864, eq. 34)."""
    _, T, _, D = x_BxTxHxD.shape
    cos, sin = waves(T, D, theta)
    low, high = jnp.split(x_BxTxHxD.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return turned.astype(x_BxTxHxD.dtype)


class Attention(nnx.Module):
    """Causal self-attention; K key heads, each shared by G query heads."""

    def __init__(self, config: Shape, rngs: nnx.Rngs):
        self.config = config
        width, query_width, kv_width = config.d_model, config.query_width, config.kv_width
        std = width**-0.5
        self.query = Linear(width, query_width, std, rngs)
        self.key = Linear(width, kv_width, std, rngs)
        self.value = Linear(width, kv_width, std, rngs)
        out_std = query_width**-0.5 * (2 * config.num_layers) ** -0.5
        self.output = Linear(query_width, width, out_std, rngs)
        if config.qk_norm:
            self.query_norm = Norm(config.norm, config.head_width)
            self.key_norm = Norm(config.norm, config.head_width)

    def __call__(self, x_BxTxM, kernel: Kernel):
        """What the attention adds to the residual stream."""
        B, T, _ = x_BxTxM.shape
        K, D = self.config.kv_heads, self.config.head_width
        q_BxTxHxD: Any = self.query(x_BxTxM).reshape(B, T, -1, D)
        k_BxTxKxD: Any = self.key(x_BxTxM).reshape(B, T, K, D)
        v_BxTxKxD = self.value(x_BxTxM).reshape(B, T, K, D)
        theta = self.config.rope_theta
        if self.config.qk_norm and kernel.fused:
            how = self.config.norm, theta
            q_BxTxHxD = turned(*how, D**-0.5, q_BxTxHxD, self.query_norm.scale[...])
            k_BxTxKxD = turned(*how, 1.0, k_BxTxKxD, self.key_norm.scale[...])
        else:
            if self.config.qk_norm:
                q_BxTxHxD, k_BxTxKxD = self.query_norm(q_BxTxHxD), self.key_norm(k_BxTxKxD)
            q_BxTxHxD, k_BxTxKxD = rope(q_BxTxHxD, theta) * D**-0.5, rope(k_BxTxKxD, theta)
        return self.output(kernel.attend(q_BxTxHxD, k_BxTxKxD, v_BxTxKxD).reshape(B, T, -1))


class Block(nnx.Module):
    """One residual block."""

    def __init__(self, config: Shape, rngs: nnx.Rngs):
        self.attention_norm = Norm(config.norm, config.d_model)
        self.attention = Attention(config, rngs)
        self.mlp_norm = Norm(config.norm, config.d_model)
        self.mlp = config.mlp(rngs)

    def __call__(self, x_BxTxM, kernel: Kernel):
        """The residual stream after this block, and what is minimised besides, if anything."""
        x_BxTxM = x_BxTxM + self.attention(self.attention_norm(x_BxTxM, kernel.fused), kernel)
        added_BxTxM, besides = self.mlp(self.mlp_norm(x_BxTxM, kernel.fused), kernel.fused)
        return x_BxTxM + added_BxTxM, besides


class Transformer(nnx.Module):
    """Tokens to what the head makes float32 logits of."""

    def __init__(self, config: Shape, rngs: nnx.Rngs):
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

    def __call__(self, tokens_BxT, kernel: Kernel, gather: Gather, layers: Layers):
        """The normalised end of the residual stream (B, T, d_model), and the head of its logits.

        And what is minimised besides, a sum over the blocks; None where there is nothing.
        """
        dtype = jnp.dtype(self.config.dtype)
        embedding_VxM = gather(self.embedding.get_value())
        # Cast behind the look-up, whose gradient is a sum too long for bfloat16.
        x_BxTxM = embedding_VxM[tokens_BxT].astype(dtype)
        x_BxTxM, besides = self._blocks(x_BxTxM, kernel, gather, layers)
        head_MxV = embedding_VxM.T if self.config.tied else gather(self.head.kernel.get_value())
        x_BxTxM: Any = self.final_norm(x_BxTxM, kernel.fused)
        of_logits = self.config.multipliers(_NAMES["embedding" if self.config.tied else "head"])
        if of_logits.output != 1:
            x_BxTxM = x_BxTxM * of_logits.output
        return x_BxTxM, head_MxV, besides

    def _blocks(self, x_BxTxM, kernel: Kernel, gather: Gather, layers: Layers):
        def step(x_BxTxM, block_state):
            # Within what is computed again, so that the backward pass gathers again.
            return nnx.merge(graphdef, gather(block_state))(x_BxTxM, kernel)

        if self.config.scan_layers:
            graphdef, stacked = nnx.split(self.layers)
            unroll = min(layers.unroll, self.config.num_layers) or self.config.num_layers
            # Of a loop the compiler does not see that what is in it is computed twice.
            step = self._remat(step, x_BxTxM, layers, unroll == self.config.num_layers > 1)
            x_BxTxM, besides_L = jax.lax.scan(step, x_BxTxM, stacked, unroll=unroll)
            return x_BxTxM, None if besides_L is None else besides_L.sum()
        step, every = self._remat(step, x_BxTxM, layers, True), []
        for layer in range(self.config.num_layers):
            graphdef, state = nnx.split(getattr(self, f"layer_{layer}"))
            x_BxTxM, besides = step(x_BxTxM, state)
            every.append(besides)
        return x_BxTxM, None if every[0] is None else sum(every)

    def _remat(self, step: Callable[..., Any], x_BxTxM, layers: Layers, prevent_cse: bool):
        """A block that keeps for the backward pass what it may."""
        keep = most_kept(self.config, x_BxTxM.size // self.config.d_model, layers)
        if not self.config.remat or keep == "all":
            return step
        return jax.checkpoint(step, prevent_cse=prevent_cse, policy=_POLICIES[keep])


def most_kept(config: Shape, tokens: int, layers: Layers) -> Keep:
    """What is kept of the blocks of so many tokens: no more than is asked for and has room."""
    choices = get_args(Keep)[: get_args(Keep).index(layers.keep) + 1]
    if layers.room is not None:
        choices = [keep for keep in choices if kept_bytes(config, tokens, keep) <= layers.room]
    return choices[-1] if choices else "nothing"


def kept_bytes(config: Shape, tokens: int, keep: Keep) -> int:
    """Bytes of what all blocks keep of so many tokens, besides their inputs, by `Layers.keep`."""
    width, query_width, kv_width = config.d_model, config.query_width, config.kv_width
    hidden = (2 if config.activation == "swiglu" else 1) * config.mlp_width
    padding, routed = config.padding(tokens), config.routed_width
    products = 2 * query_width + 2 * kv_width + width + padding * (hidden + routed)
    # Besides: both norms' results, the stream between, queries and keys turned, the nonlinearity's,
    # and what experts are given; what they give in float32 takes the place of their product.
    rest = 3 * width + query_width + kv_width + padding * config.mlp_width + 2 * routed
    each = {"nothing": 0, "attention": query_width, "products": products, "all": products + rest}
    return int(each[keep] * tokens) * config.num_layers * jnp.dtype(config.dtype).itemsize


def _keeps_attention(primitive, *_, **__) -> bool:
    return "dot_product_attention_fwd" in primitive.name


def _keeps_products(primitive, *_, **__) -> bool:
    return primitive.name == "dot_general" or _keeps_attention(primitive)


_POLICIES: dict[Keep, Callable[..., bool] | None] = {
    "nothing": None,
    "attention": _keeps_attention,
    "products": _keeps_products,
}


@functools.cache
def _graphdef(config: Shape) -> nnx.GraphDef:
    return nnx.split(nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0))))[0]


@functools.partial(jax.jit, static_argnums=0)
def _init(config: Shape, key: jax.Array) -> Params:
    params = nnx.to_pure_dict(nnx.state(Transformer(config, nnx.Rngs(params=key))))
    spreads = each_of(partition_names(params), lambda axes: config.multipliers(own_axes(axes)).init)
    return jax.tree.map(lambda x, spread: x if spread == 1 else spread * x, params, spreads)


def init(config: Shape, seed: int) -> Params:
    """Fresh parameters: nested dicts of float32 arrays, a pure function of config and seed."""
    return _init(config, jax.random.key(seed))


def loss_sum(
    config: Shape,
    params: Params,
    sequences_BxT1,
    *how: Any,
) -> jax.Array:
    """Cross-entropy of the next token in nats, summed over the B·T targets, a float32 scalar.

    Of integer tokens (B, T + 1) all but the last are inputs, all but the first are targets. `how`
    are an attention kernel's name, one of `attention.KERNELS`, "reference" if not given, and what
    makes parameters whole, those of a layer within the layer.
    """
    return loss_and_balance(config, params, sequences_BxT1, *how)[0]


def loss_and_balance(
    config: Shape, params: Params, sequences_BxT1, *how: Any
) -> tuple[jax.Array, jax.Array | None]:
    """As `loss_sum`, and the load-balance loss of a mixture's blocks, summed alike; else None."""
    x_BxTxM, head_MxV, balance, fused = _ends(config, params, sequences_BxT1, *how)
    return cross_entropy(x_BxTxM, head_MxV, sequences_BxT1[:, 1:], fused), balance


def target_losses(
    config: Shape, params: Params, sequences_BxT1, *how: Any
) -> tuple[jax.Array, jax.Array]:
    """As `loss_sum`, and [B, T] of what it sums; `how` as there."""
    x_BxTxM, head_MxV, _, fused = _ends(config, params, sequences_BxT1, *how)
    return cross_entropies(x_BxTxM, head_MxV, sequences_BxT1[:, 1:], fused)


def logits(config: Shape, params: Params, sequences_BxT1, *how: Any) -> jax.Array:
    """Of the targets of `loss_sum`, float32 [B, T, vocab_size]; `how` as there."""
    x_BxTxM, head_MxV, *_ = _ends(config, params, sequences_BxT1, *how)
    return matmul(x_BxTxM, head_MxV, jnp.float32)


def _ends(
    config: Shape,
    params: Params,
    sequences_BxT1,
    attention: str = "reference",
    gather: Gather = as_it_is,
    layers: Layers = ONE_BY_ONE,
):
    transformer, kernel = nnx.merge(_graphdef(config), params), KERNELS[attention]
    return *transformer(sequences_BxT1[:, :-1], kernel, gather, layers), kernel.fused


_NAMES = {
    "embedding": ("vocab", "embed"),
    "head": ("embed", "vocab"),
    "router": ("embed", "experts"),
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

    def names(path: tuple, leaf: jax.Array) -> tuple[str, ...]:
        keys = [entry.key for entry in path]
        own = _NAMES.get("embedding" if keys[-1] == "embedding" else keys[-2], ("norm",))
        return (*[STACK] * (len(leaf.shape) - len(own)), *own)

    return jax.tree.map_with_path(names, params)
