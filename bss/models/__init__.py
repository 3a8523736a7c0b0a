"""Model families by name. A custom family is named `package.module:ATTRIBUTE`, its class.

Facts (base, transformer, size_fields, sizes: configs, counts, FLOPs) import no JAX. Functions
(losses, attention, parts, moe, network: arrays) import facts, and no fact imports a function.
"""

from bss.models.base import FAMILIES, ModelFamily
from bss.models.transformer import MixtureConfig, TransformerConfig

__all__ = ["FAMILIES", "MixtureConfig", "ModelFamily", "TransformerConfig"]
