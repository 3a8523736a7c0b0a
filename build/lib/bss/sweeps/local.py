"""The local engine: worker processes on this machine, in a slot each.

Two pinned one-core processes train small models faster than one process on two cores.
"""

from collections.abc import Sequence
from pathlib import Path

from bss.machines.slots import Slot, local_slots
from bss.sweeps.engine import WorkerEngine
from bss.sweeps.setup import EngineConfig
from bss.sweeps.workers import WorkerProcess
from bss.training.execution import Execution


class LocalEngine(WorkerEngine):
    """Trains runs on this machine."""

    def __init__(self, slots: Sequence[Slot], *, fleet: int = 1, retries: int = 0):
        """See `WorkerEngine`; `slots` are where its workers are."""
        super().__init__(fleet=fleet, retries=retries)
        self._slots = slots

    @classmethod
    def of(cls, config: EngineConfig) -> "LocalEngine":
        """The engine that a config asks for."""
        told = config.workers, config.devices
        slots = local_slots(*told, pin=config.pin, least=config.fsdp)
        return cls(slots, fleet=config.fleet, retries=config.retries)

    def slots(self) -> Sequence[Slot]:
        """Those it was given."""
        return self._slots

    def start(self, slot: Slot, log: Path, execution: Execution) -> WorkerProcess:
        """Starts a worker process."""
        return WorkerProcess(slot, log)
