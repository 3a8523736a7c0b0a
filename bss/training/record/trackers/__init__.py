"""Who is told of a curve besides its directory; a user's own is `package.module:ATTRIBUTE`."""

from bss.registry import Registry
from bss.training.record.trackers.base import Tracker
from bss.training.record.trackers.tensorboard import TensorBoard
from bss.training.record.trackers.wandb import WeightsAndBiases

__all__ = ["TRACKERS", "Tracker"]

TRACKERS: Registry[type[Tracker]] = Registry(
    "execution.trackers",
    {"tensorboard": TensorBoard, "wandb": WeightsAndBiases},
    of=type[Tracker],
)
