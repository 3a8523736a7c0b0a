"""The loss of the head, in chunks of tokens where the logits of all are too many to hold."""

import jax
import jax.numpy as jnp

from bss.models.transformer.layers import matmul


def cross_entropy(x_BxTxM, head_MxV, targets_BxT) -> jax.Array:
    """Cross-entropy of the targets in nats, summed, a float32 scalar."""
    logits_BxTxV = matmul(x_BxTxM, head_MxV, jnp.float32)
    picked_BxT = jnp.take_along_axis(logits_BxTxV, targets_BxT[..., None], axis=-1)[..., 0]
    return jnp.sum(jax.nn.logsumexp(logits_BxTxV, axis=-1) - picked_BxT)
