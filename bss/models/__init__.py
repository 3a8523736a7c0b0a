"""Families of models; a user's own is named `package.module:ATTRIBUTE`, its class."""

from bss.models.family import ModelFamily
from bss.models.transformer.config import TransformerConfig
from bss.models.transformer.mixture import MixtureConfig
from bss.registry import Registry

FAMILIES: Registry[type[ModelFamily]] = Registry(
    "model.family",
    {"transformer": TransformerConfig, "mixture": MixtureConfig},
    of=type[ModelFamily],
)
