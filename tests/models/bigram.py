"""A model family of a user's own: the next token from this one alone."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bss.models.base import Counts, ModelFamily


@dataclass(frozen=True)
class Bigram(ModelFamily):
    """An embedding and a head; `shrink` weighs the squares of the logits in the objective."""

    width: int = 8
    shrink: float = 0.0

    def init(self, seed):
        """Normals."""
        embedding, head = jax.random.normal(jax.random.key(seed), (2, self.vocab_size, self.width))
        return {"embedding": embedding, "head": 0.1 * head.T}

    def loss(self, params, sequences_BxT1):
        """Cross-entropy, and the squares of the logits apart."""
        logits_BxTxV = params["embedding"][sequences_BxT1[:, :-1]] @ params["head"]
        losses = -jnp.take_along_axis(
            jax.nn.log_softmax(logits_BxTxV), sequences_BxT1[:, 1:, None], axis=-1
        )
        return losses.sum(), {"squares": self.shrink * jnp.square(logits_BxTxV).sum()}

    def partition_names(self, params):
        """Both are matrices of tokens."""
        return {"embedding": ("vocab", "embed"), "head": ("embed", "vocab")}

    def counts(self):
        """All parameters are embeddings."""
        return Counts(2 * self.vocab_size * self.width, 2 * self.vocab_size * self.width, 0)

    def forward_flops_per_token(self, seq_len):
        """The head's."""
        return 2 * self.vocab_size * self.width
