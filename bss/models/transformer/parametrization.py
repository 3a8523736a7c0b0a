"""How initial spreads, rates and outputs follow the width: a tensor's axes to three multipliers.

"standard" changes nothing. "mup" is the maximal update parametrization of Yang et al. (2203.03466,
table 3, Adam's column), which keeps activations and their updates of one size at every width, so
that the best rate of a narrow model is about that of a wide one. Multipliers are those of the
network's own spreads (`network`), which are as 1/sqrt(fan_in) but for the head's, 1/width; they are
1 at the base width. Wider models are to have more heads, not wider ones, and `d_ff` in proportion.
A tied matrix has the embedding's rate, and its logits are divided by the width (table 8).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class Multipliers(NamedTuple):
    """Of one tensor: its initial spread, its learning rate, and the logits that it makes."""

    init: float = 1.0
    rate: float = 1.0
    output: float = 1.0


Parametrization = Callable[[tuple[str, ...], float, bool], Multipliers]
"""Of the names of a tensor's axes, stacks left out, the width over the base's, and whether one
matrix is embedding and head."""


def standard(axes: tuple[str, ...], width: float, tied: bool) -> Multipliers:
    """All 1."""
    return Multipliers()


def mup(axes: tuple[str, ...], width: float, tied: bool) -> Multipliers:
    """Of Adam; see the module.

    >>> mup(("embed", "mlp"), 4.0, False), mup(("norm",), 4.0, False)
    (Multipliers(init=1.0, rate=0.25, output=1.0), Multipliers(init=1.0, rate=1.0, output=1.0))
    """
    if len(axes) == 1:
        return Multipliers()
    if axes[0] == "vocab":
        return Multipliers(width, output=1 / width) if tied else Multipliers(width**0.5)
    is_router = axes[-1] == "experts"  # as many outputs at every width, as the head has
    return Multipliers(width**-0.5 if is_router else 1.0, 1 / width)


PARAMETRIZATIONS: Mapping[str, Parametrization] = MappingProxyType(
    {"standard": standard, "mup": mup}
)
