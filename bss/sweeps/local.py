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

    def __init__(self, config: EngineConfig):
        """Finds its slots; InputError where the machine has too few devices."""
        super().__init__(config)
        self._slots = local_slots(config.workers, config.devices, pin=config.pin, least=config.fsdp)

    def slots(self) -> Sequence[Slot]:
        """Those there were at the start."""
        return self._slots

    def start(self, slot: Slot, log: Path, execution: Execution) -> WorkerProcess:
        """Starts a worker process."""
        return WorkerProcess(slot, log)
