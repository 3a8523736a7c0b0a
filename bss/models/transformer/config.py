"""The transformer as a family of models; the network is imported where it is first used."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bss.models.family import (
    ONE_BY_ONE,
    Gather,
    Layers,
    Logits,
    LossSums,
    Params,
    TargetLosses,
    as_it_is,
    each_of,
    own_axes,
)
from bss.models.transformer.shape import Shape
from bss.models.transformer.sizes import size

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class TransformerConfig(Shape):
    """A decoder-only pre-norm transformer without biases; its fields are those of `Shape`."""

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Its fields; those of the size of a `name` where they are not given."""
        name = entry.pop("name", None)
        return super().decoded(entry if name is None else {**size(str(name)), **entry})

    def init(self, seed: int) -> Params:
        """See `network.init`."""
        return network().init(self, seed)

    def loss(
        self, params: Params, sequences_BxT1: "jax.Array"
    ) -> tuple["jax.Array", dict[str, "jax.Array"]]:
        """See `network.loss_sum`; there are no auxiliary terms."""
        return self.loss_by("reference")(params, sequences_BxT1)

    def loss_by(
        self, attention: str, gather: Gather = as_it_is, layers: Layers = ONE_BY_ONE
    ) -> LossSums:
        """See `network.loss_sum`."""
        how = attention, gather, layers
        return lambda params, tokens: (network().loss_sum(self, params, tokens, *how), {})

    def target_losses_by(self, attention: str, gather: Gather = as_it_is) -> TargetLosses:
        """See `network.target_losses`."""
        how = attention, gather
        return lambda params, tokens: network().target_losses(self, params, tokens, *how)

    def logits_by(self, attention: str, gather: Gather = as_it_is) -> Logits:
        """See `network.logits`."""
        how = attention, gather
        return lambda params, tokens: network().logits(self, params, tokens, *how)

    def choose_attention(self, name: str, device: Any, seq_lens: Collection[int]) -> str:
        """See `attention.choose`."""
        from bss.models.transformer.attention import choose

        return choose(name, self, device, seq_lens)

    def partition_names(self, params: Params) -> Params:
        """See `network.partition_names`."""
        return network().partition_names(params)

    def rates(self, params: Params) -> Params | None:
        """Those of its parametrization."""
        rates = each_of(
            self.partition_names(params), lambda names: self.multipliers(own_axes(names)).rate
        )
        return rates if self.own_rates else None


def network() -> Any:
    """The network's module, imported where it is first used: sizes are counted without JAX."""
    from bss.models.transformer import network

    return network
