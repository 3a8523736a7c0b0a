"""Model families by name. A custom family is named `package.module:ATTRIBUTE`, its class."""

from bss.models.base import ModelFamily
from bss.models.transformer import MixtureConfig, TransformerConfig
from bss.registry import Registry

FAMILIES: Registry[type[ModelFamily]] = Registry(
    "model.family",
    {"transformer": TransformerConfig, "mixture": MixtureConfig},
    of=type[ModelFamily],
)
