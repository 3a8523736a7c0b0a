"""A transformer whose blocks have a mixture of experts in place of the MLP; counted without JAX.

The network and its sources are in `experts`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bss.errors import InputError
from bss.models.family import ONE_BY_ONE, Gather, Layers, LossSums, as_it_is
from bss.models.transformer.config import TransformerConfig, network
from bss.models.transformer.shape import check_size


@dataclass(frozen=True)
class MixtureConfig(TransformerConfig):
    """A transformer of experts; `d_ff` is the hidden width of each.

    Attributes:
      num_experts: in each block.
      top_k: experts that a token passes.
      balance: weight of the load-balance loss in what is minimised; it is no part of the loss that
        is reported.

    Raises:
      InputError: what `Shape` refuses, more experts for a token than there are, a negative weight.

    >>> sizes = {"num_layers": 2, "d_model": 64, "num_heads": 4, "d_ff": 128}
    >>> counts = MixtureConfig(256, **sizes, num_experts=8, top_k=2).counts()
    >>> counts.active, counts.non_embedding
    (99712, 296320)
    """

    num_experts: int = 8
    top_k: int = 2
    balance: float = 0.01

    def __post_init__(self):
        super().__post_init__()
        for name in ("num_experts", "top_k"):
            check_size(name, getattr(self, name))
        if self.top_k > self.num_experts:
            raise InputError(
                f"top_k={self.top_k}: expected at most the num_experts={self.num_experts}"
            )
        if not isinstance(self.balance, int | float) or not 0 <= self.balance < math.inf:
            raise InputError(f"balance={self.balance!r}: expected 0, or a positive number")

    @property
    def label(self) -> str:
        """Layers and width, experts and those of a token, "2x64-8e2"."""
        return f"{super().label}-{self.num_experts}e{self.top_k}"

    @property
    def mlp_width(self) -> int:
        """Hidden dimensions that a token meets, in all its experts."""
        return self.top_k * self.d_ff

    @property
    def routed_width(self) -> int:
        """See `Shape`."""
        return self.top_k * self.d_model

    def padding(self, tokens: int) -> float:
        """See `Shape`."""
        blocks, size = block_shape(self.top_k * tokens, self.num_experts)
        return blocks * size / (self.top_k * tokens)

    def mlp(self, rngs: Any) -> Callable[..., Any]:
        """A block's experts."""
        from bss.models.transformer.experts import Experts

        return Experts(self, rngs)

    def mlp_counts(self) -> tuple[int, int]:
        """Parameters of a block's experts and router; of them, those that a token passes."""
        (expert, _), router = super().mlp_counts(), self.d_model * self.num_experts
        return router + self.num_experts * expert, router + self.top_k * expert

    def loss_by(
        self, attention: str, gather: Gather = as_it_is, layers: Layers = ONE_BY_ONE
    ) -> LossSums:
        """See `network.loss_and_balance`; the load-balance loss comes with its weight."""

        def sums(params: Any, tokens: Any) -> Any:
            loss, balance = network().loss_and_balance(
                self, params, tokens, attention, gather, layers
            )
            return loss, {"balance": self.balance * balance}

        return sums


def block_shape(rows: int, experts: int) -> tuple[int, int]:
    """Blocks of one expert each that hold so many rows whatever the load, and the rows of one.

    Those are a power of two, 8 or more: with 16 rows an expert or more, half as many are padding.

    >>> block_shape(512, 8)
    (23, 32)
    """
    size = max(8, 1 << (max(rows // (2 * experts), 1).bit_length() - 1))
    return min(rows, (rows + experts * (size - 1)) // size), size
