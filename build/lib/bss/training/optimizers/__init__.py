"""Optimizers, one file each; a user's own is named `package.module:ATTRIBUTE`, its class."""

from bss.registry import Registry
from bss.training.optimizers.adamw import AdamW
from bss.training.optimizers.base import Optimizer
from bss.training.optimizers.muon import Muon
from bss.training.optimizers.schedule_free import ScheduleFree
from bss.training.optimizers.sgd import SGD

OPTIMIZERS: Registry[type[Optimizer]] = Registry(
    "optimizer.name",
    {"adamw": AdamW, "sgd": SGD, "schedule_free": ScheduleFree, "muon": Muon},
    of=type[Optimizer],
)
