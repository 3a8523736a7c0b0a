"""Causal softmax attention: kernels by name, and the choice of a kernel for a device.

Queries are scaled before they reach a kernel. Kernels agree up to rounding, so the kernel is a
setting of the execution and not part of the run id.
"""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.installation import install
from bss.models.transformer import TransformerConfig
from bss.registry import Registry

_SHORT = 64
"""Maximum queries to process at once: one step with head dimension 64 is 1.06 times as fast."""

Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def reference(q_BxTxHxD: jax.Array, k_BxTxKxD: jax.Array, v_BxTxKxD: jax.Array) -> jax.Array:
    """Compute causal softmax attention, in float32 between the products; H/K queries share a key
    head.

    It is written for XLA's CPU backend. Heads are the leading axis, and the D-wide result is
    normalised instead of the T-wide weights. The first half of many queries skips the second half
    of the keys.
    """
    B, T, H, D = q_BxTxHxD.shape
    q_BxHxTxD = q_BxTxHxD.transpose(0, 2, 1, 3)
    k_BxKxTxD = k_BxTxKxD.transpose(0, 2, 1, 3)
    v_BxKxTxD = v_BxTxKxD.transpose(0, 2, 1, 3)
    q_BxKxGxTxD = q_BxHxTxD.reshape(B, k_BxKxTxD.shape[1], -1, T, D)
    spans = ((0, T),) if T <= _SHORT else ((0, T // 2), (T // 2, T))
    mixed_BxKxGxTxD = jnp.concatenate(
        [
            _last_queries(
                q_BxKxGxTxD[..., start:stop, :], k_BxKxTxD[..., :stop, :], v_BxKxTxD[..., :stop, :]
            )
            for start, stop in spans
        ],
        axis=3,
    )
    return mixed_BxKxGxTxD.reshape(B, H, T, D).transpose(0, 2, 1, 3).astype(q_BxTxHxD.dtype)


def _last_queries(q_BxKxGxTxD: jax.Array, k_BxKxSxD: jax.Array, v_BxKxSxD: jax.Array) -> jax.Array:
    """Return the attention of the last T of S positions, each over the keys up to its place."""
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


def cudnn(q_BxTxHxD: jax.Array, k_BxTxKxD: jax.Array, v_BxTxKxD: jax.Array) -> jax.Array:
    """Compute `reference` by cuDNN's flash attention (Dao et al., 2205.14135); InputError without
    cuDNN.
    """
    try:
        return jax.nn.dot_product_attention(
            q_BxTxHxD, k_BxTxKxD, v_BxTxKxD, scale=1.0, is_causal=True, implementation="cudnn"
        )
    except RuntimeError as error:
        raise InputError(
            f"execution.attention: cudnn cannot be compiled ({error}); "
            f"{install('aot-cudnn')}, or ask for reference"
        ) from None


def splash(
    q_BxTxHxD: jax.Array, k_BxTxKxD: jax.Array, v_BxTxKxD: jax.Array, *, interpret: bool = False
) -> jax.Array:
    """Compute `reference` by JAX's Pallas kernel for TPUs; interpreted, it runs on any device."""
    from jax.experimental.pallas.ops.tpu import splash_attention

    _, T, H, _ = q_BxTxHxD.shape
    block = next(size for size in (512, 256, SPLASH_BLOCK) if T % size == 0)
    sizes = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    blocks: dict[str, Any] = dict.fromkeys(sizes, block)
    kernel = splash_attention.make_splash_mha(
        splash_attention.MultiHeadMask([splash_attention.CausalMask((T, T))] * H),
        block_sizes=splash_attention.BlockSizes(**blocks),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    by_head = (x.transpose(0, 2, 1, 3) for x in (q_BxTxHxD, k_BxTxKxD, v_BxTxKxD))
    mixed_BxHxTxD: Any = jax.vmap(kernel)(*by_head)
    return mixed_BxHxTxD.transpose(0, 2, 1, 3)


@dataclass(frozen=True)
class Kernel:
    """An attention kernel.

    Attributes:
        attend: function of scaled queries [B, T, H, D], and keys and values [B, T, K, D] of the
            same dtype, to [B, T, H, D]. H/K queries share a key head. It must be differentiable.
        refuses: function of (device, dtype of activations, head dimension, sequence length) to the
            reason why the kernel cannot be used; "" if it can.
        fused: True if the rest of a block is computed for a compiler that fuses many operations
            into one pass over memory, as on GPUs (see `network`).
    """

    attend: Attend
    refuses: Callable[[Any, str, int, int], str] = lambda device, dtype, head_dim, seq_len: ""
    fused: bool = False


def _cudnn_refuses(device: Any, dtype: str, head_dim: int, seq_len: int) -> str:
    capability = str(getattr(device, "compute_capability", "8.0")).partition(".")[0]
    if device.platform not in ("gpu", "cuda") or not capability.isdigit() or int(capability) < 8:
        return f"needs an NVIDIA GPU, of A100 or later, not {device.device_kind}"
    if dtype != "bfloat16":
        return f"needs model.dtype bfloat16, not {dtype}"
    if head_dim % 8 or head_dim > 128:
        return f"needs heads of 8, 16, ... or 128 dimensions, not {head_dim}"
    return ""


def _splash_refuses(device: Any, dtype: str, head_dim: int, seq_len: int) -> str:
    if device.platform != "tpu":
        return f"needs a TPU, not {device.device_kind}"
    if seq_len % SPLASH_BLOCK:
        return f"needs sequences of a multiple of {SPLASH_BLOCK} tokens, not {seq_len}"
    return ""


SPLASH_BLOCK = 128
"""Splash attention needs sequence lengths that are multiples of this."""

KERNELS = Registry(
    "execution.attention",
    {
        "cudnn": Kernel(cudnn, _cudnn_refuses, fused=True),
        "splash": Kernel(splash, _splash_refuses),
        "reference": Kernel(reference),
    },
    of=Kernel,
)


def choose(name: str, config: TransformerConfig, device: Any, seq_lens: Collection[int]) -> str:
    """Return the name of the kernel to use.

    Args:
        name: a name of `KERNELS`, or "auto" for the first that can be used.
        config: the model.
        device: the device that computes it, present or described.
        seq_lens: lengths of all sequences.

    Raises:
        InputError: If the requested kernel cannot be used.
    """

    def refusal(kernel: str) -> str:
        refusals = (
            KERNELS.load(kernel).refuses(device, config.dtype, config.head_width, length)
            for length in seq_lens
        )
        return next(filter(None, refusals), "")

    if name == "auto":
        return next(kernel for kernel in KERNELS if not refusal(kernel))
    if why := refusal(name):
        raise InputError(f"execution.attention: {name} {why}; ask for reference or auto")
    return name
