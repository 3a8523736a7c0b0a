"""The decoder-only transformer: flax nnx modules inside, pure functions of a dict outside.

Pre-norm blocks use RoPE (Su et al., 2104.09864), rotating the halves of a head as in GPT-NeoX.
Attention has grouped queries (Ainslie et al., 2305.13245) and QK-norm (Dehghani et al.,
2302.05442). MLPs use SwiGLU (Shazeer, 2002.05202) or squared ReLU (So et al., 2109.08668).

Matrices are initialised from plain (not truncated) normals, which a parametrization multiplies (see
`transformer`):

- std 1/sqrt(fan_in), divided by sqrt(2·num_layers) before the residual stream (GPT-2).
- std 1/sqrt(d_model) for an untied embedding.
- std 1/d_model for the matrix that makes logits (the head, or the tied matrix). The initial loss is
  then within 1/(2·d_model) of ln(vocab_size) untied, and close to it tied.
- 1 for norm scales.

Outside of this module a model is `params`: nested dicts of float32 arrays, layers under "layer_0",
"layer_1", ... or, with `scan_layers`, stacked on a leading axis under "layers".
"""

import functools
from collections.abc import Callable
from typing import Any, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from bss.models.attention import KERNELS, Kernel
from bss.models.base import (
    DEFAULT_COMPUTE,
    STACK,
    Compute,
    Layers,
    Params,
    RematPolicy,
    map_names,
    unstacked_axes,
)
from bss.models.losses import cross_entropies, cross_entropy, matmul
from bss.models.moe import Experts
from bss.models.parts import MLP, Linear, Norm, fused_norm_rope, rope
from bss.models.transformer import MixtureConfig, TransformerConfig


class Attention(nnx.Module):
    """Causal self-attention; K key heads, each shared by G query heads."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs) -> None:
        self.config = config
        width = config.d_model
        query_width = config.query_width
        kv_width = config.kv_width
        std = width**-0.5
        self.query = Linear(width, query_width, std, rngs)
        self.key = Linear(width, kv_width, std, rngs)
        self.value = Linear(width, kv_width, std, rngs)
        out_std = query_width**-0.5 * (2 * config.num_layers) ** -0.5
        self.output = Linear(query_width, width, out_std, rngs)
        if config.qk_norm:
            self.query_norm = Norm(config.norm, config.head_width)
            self.key_norm = Norm(config.norm, config.head_width)

    def __call__(self, x_BxTxM: jax.Array, kernel: Kernel) -> jax.Array:
        """Return the attention's addition to the residual stream."""
        B, T, _ = x_BxTxM.shape
        K = self.config.kv_heads
        D = self.config.head_width
        q_BxTxHxD: Any = self.query(x_BxTxM).reshape(B, T, -1, D)
        k_BxTxKxD: Any = self.key(x_BxTxM).reshape(B, T, K, D)
        v_BxTxKxD = self.value(x_BxTxM).reshape(B, T, K, D)
        theta = self.config.rope_theta
        if self.config.qk_norm and kernel.fused:
            how = self.config.norm, theta
            q_BxTxHxD = fused_norm_rope(*how, D**-0.5, q_BxTxHxD, self.query_norm.scale[...])
            k_BxTxKxD = fused_norm_rope(*how, 1.0, k_BxTxKxD, self.key_norm.scale[...])
        else:
            if self.config.qk_norm:
                q_BxTxHxD = self.query_norm(q_BxTxHxD)
                k_BxTxKxD = self.key_norm(k_BxTxKxD)
            q_BxTxHxD = rope(q_BxTxHxD, theta) * D**-0.5
            k_BxTxKxD = rope(k_BxTxKxD, theta)
        return self.output(kernel.attend(q_BxTxHxD, k_BxTxKxD, v_BxTxKxD).reshape(B, T, -1))


class Block(nnx.Module):
    """One residual block."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs) -> None:
        self.attention_norm = Norm(config.norm, config.d_model)
        self.attention = Attention(config, rngs)
        self.mlp_norm = Norm(config.norm, config.d_model)
        self.mlp: Any = make_mlp(config, rngs)

    def __call__(self, x_BxTxM: jax.Array, kernel: Kernel) -> tuple[jax.Array, jax.Array | None]:
        """Return the residual stream after this block, and the load-balance loss, if any."""
        x_BxTxM = x_BxTxM + self.attention(self.attention_norm(x_BxTxM, kernel.fused), kernel)
        added_BxTxM, balance = self.mlp(self.mlp_norm(x_BxTxM, kernel.fused), kernel.fused)
        return x_BxTxM + added_BxTxM, balance


def make_mlp(config: TransformerConfig, rngs: nnx.Rngs) -> Experts | MLP:
    """Return the part of a block after attention."""
    if isinstance(config, MixtureConfig):
        return Experts(config, rngs)
    return MLP(config, rngs)


class Transformer(nnx.Module):
    """From tokens to the input of the head, which computes float32 logits."""

    def __init__(self, config: TransformerConfig, rngs: nnx.Rngs) -> None:
        self.config = config
        width = config.d_model
        vocab = config.vocab_size
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

    def __call__(
        self, tokens_BxT: jax.Array, kernel: Kernel, compute: Compute
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Return the normalised residual stream (B, T, d_model), the head matrix, the balance loss.

        The load-balance loss is summed over the blocks; None for a model without experts.
        """
        dtype = jnp.dtype(self.config.dtype)
        embedding_VxM = compute.all_gather(self.embedding.get_value())
        # Cast after the look-up, whose gradient is a sum too long for bfloat16.
        x_BxTxM = embedding_VxM[tokens_BxT].astype(dtype)
        x_BxTxM, balance = self._blocks(x_BxTxM, kernel, compute)
        tied = self.config.tied
        head_MxV = embedding_VxM.T if tied else compute.all_gather(self.head.kernel.get_value())
        x_BxTxM: Any = self.final_norm(x_BxTxM, kernel.fused)
        multipliers = self.config.multipliers(_NAMES["embedding" if tied else "head"])
        if multipliers.output != 1:
            x_BxTxM = x_BxTxM * multipliers.output
        return x_BxTxM, head_MxV, balance

    def _blocks(
        self, x_BxTxM: jax.Array, kernel: Kernel, compute: Compute
    ) -> tuple[jax.Array, Any]:
        def step(x_BxTxM: jax.Array, block_state: Any) -> tuple[jax.Array, jax.Array | None]:
            # Gathered inside the rematerialised function, so that the backward pass gathers again.
            return nnx.merge(graphdef, compute.all_gather(block_state))(x_BxTxM, kernel)

        layers = compute.layers
        if self.config.scan_layers:
            graphdef, stacked = nnx.split(self.layers)
            unroll = min(layers.unroll, self.config.num_layers) or self.config.num_layers
            # In a loop the compiler cannot see that the same values are computed twice.
            step = self._remat(step, x_BxTxM, layers, unroll == self.config.num_layers > 1)
            x_BxTxM, balance_L = jax.lax.scan(step, x_BxTxM, stacked, unroll=unroll)
            return x_BxTxM, None if balance_L is None else balance_L.sum()
        step = self._remat(step, x_BxTxM, layers, True)
        every = []
        for layer in range(self.config.num_layers):
            graphdef, state = nnx.split(getattr(self, f"layer_{layer}"))
            x_BxTxM, balance = step(x_BxTxM, state)
            every.append(balance)
        return x_BxTxM, None if every[0] is None else sum(every)

    def _remat(
        self, step: Callable[..., Any], x_BxTxM: jax.Array, layers: Layers, prevent_cse: bool
    ) -> Callable[..., Any]:
        """Return the block under the rematerialisation policy that fits."""
        policy = remat_policy(self.config, x_BxTxM.size // self.config.d_model, layers)
        if not self.config.remat or policy == "all":
            return step
        return jax.checkpoint(step, prevent_cse=prevent_cse, policy=_POLICIES[policy])


def remat_policy(config: TransformerConfig, tokens: int, layers: Layers) -> RematPolicy:
    """Return the largest policy up to the requested one whose bytes fit in the budget."""
    policies = get_args(RematPolicy)
    budget = layers.remat_budget_bytes
    choices = policies[: policies.index(layers.remat_policy) + 1]
    if budget is not None:
        choices = [policy for policy in choices if kept_bytes(config, tokens, policy) <= budget]
    return choices[-1] if choices else "nothing"


def kept_bytes(config: TransformerConfig, tokens: int, policy: RematPolicy) -> int:
    """Return the bytes that all blocks keep for these tokens in addition to their inputs."""
    width = config.d_model
    query_width = config.query_width
    kv_width = config.kv_width
    hidden = (2 if config.activation == "swiglu" else 1) * config.mlp_width
    padding = config.padding(tokens)
    routed = config.routed_width
    products = 2 * query_width + 2 * kv_width + width + padding * (hidden + routed)
    # In addition: the results of both norms, the residual stream between attention and MLP, rotated
    # queries and keys, the result of the nonlinearity, and the inputs of experts. Their float32
    # output replaces their product.
    rest = 3 * width + query_width + kv_width + padding * config.mlp_width + 2 * routed
    each = {"nothing": 0, "attention": query_width, "products": products, "all": products + rest}
    return int(each[policy] * tokens) * config.num_layers * jnp.dtype(config.dtype).itemsize


def _keeps_attention(primitive: Any, *_: Any, **__: Any) -> bool:
    return "dot_product_attention_fwd" in primitive.name


def _keeps_products(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name == "dot_general" or _keeps_attention(primitive)


_POLICIES: dict[RematPolicy, Callable[..., bool] | None] = {
    "nothing": None,
    "attention": _keeps_attention,
    "products": _keeps_products,
}


@functools.cache
def _graphdef(config: TransformerConfig) -> nnx.GraphDef:
    return nnx.split(nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0))))[0]


@functools.partial(jax.jit, static_argnums=0)
def _init(config: TransformerConfig, key: jax.Array) -> Params:
    params = nnx.to_pure_dict(nnx.state(Transformer(config, nnx.Rngs(params=key))))
    spreads = map_names(
        partition_names(params), lambda axes: config.multipliers(unstacked_axes(axes)).init
    )
    return jax.tree.map(lambda x, spread: x if spread == 1 else spread * x, params, spreads)


def init(config: TransformerConfig, seed: int) -> Params:
    """Return fresh parameters, a pure function of config and seed."""
    return _init(config, jax.random.key(seed))


def loss_and_balance(
    config: TransformerConfig,
    params: Params,
    sequences_BxT1: jax.Array,
    compute: Compute = DEFAULT_COMPUTE,
) -> tuple[jax.Array, jax.Array | None]:
    """Return the cross-entropy in nats and the load-balance loss, summed over the B·T targets.

    All integer tokens (B, T + 1) but the last are inputs; all but the first are targets. Both
    losses are float32 scalars; the load-balance loss is None for a model without experts.
    """
    x_BxTxM, head_MxV, balance, fused = _apply(config, params, sequences_BxT1, compute)
    settings = compute.layers.head
    loss = cross_entropy(x_BxTxM, head_MxV, sequences_BxT1[:, 1:], fused, settings)
    return loss, balance


def target_losses(
    config: TransformerConfig,
    params: Params,
    sequences_BxT1: jax.Array,
    compute: Compute = DEFAULT_COMPUTE,
) -> tuple[jax.Array, jax.Array]:
    """Return the cross-entropy of `loss_and_balance`, bit by bit, and of every target, [B, T]."""
    x_BxTxM, head_MxV, _, fused = _apply(config, params, sequences_BxT1, compute)
    settings = compute.layers.head
    return cross_entropies(x_BxTxM, head_MxV, sequences_BxT1[:, 1:], fused, settings)


def logits(
    config: TransformerConfig,
    params: Params,
    sequences_BxT1: jax.Array,
    compute: Compute = DEFAULT_COMPUTE,
) -> jax.Array:
    """Return the logits of the targets, float32 [B, T, vocab_size]."""
    x_BxTxM, head_MxV, *_ = _apply(config, params, sequences_BxT1, compute)
    return matmul(x_BxTxM, head_MxV, jnp.float32)


def _apply(
    config: TransformerConfig, params: Params, sequences_BxT1: jax.Array, compute: Compute
) -> tuple[jax.Array, jax.Array, jax.Array | None, bool]:
    transformer = nnx.merge(_graphdef(config), params)
    kernel = KERNELS[compute.attention]
    return *transformer(sequences_BxT1[:, :-1], kernel, compute), kernel.fused


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
    """Return the names of the axes of every parameter; see `ModelFamily`."""

    def names(path: tuple, leaf: jax.Array) -> tuple[str, ...]:
        keys = [entry.key for entry in path]
        own = _NAMES.get("embedding" if keys[-1] == "embedding" else keys[-2], ("norm",))
        return (*[STACK] * (len(leaf.shape) - len(own)), *own)

    return jax.tree.map_with_path(names, params)
