"""The local engine: one worker process per device group of this machine.

Two one-core workers, each pinned to its core, train small models faster than one on two cores.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jax.sharding import Mesh

from bss.errors import InputError
from bss.sweeps.engine import SlotEngine, WorkerLost
from bss.sweeps.setup import EngineConfig
from bss.training.hardware import Slot, has_accelerators, local_slots
from bss.training.sharding import make_mesh
from bss.training.worker import Job

COMMAND = (sys.executable, "-m", "bss.training.worker")

_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class LocalEngine(SlotEngine):
    """Trains runs on this machine, by a worker process in each slot."""

    def __init__(self, config: EngineConfig) -> None:
        """Find the slots; raise InputError if the machine has too few devices."""
        super().__init__(config)
        self.accelerators = has_accelerators()
        self._slots = local_slots(config.workers, config.devices, pin=config.pin, least=config.fsdp)

    @classmethod
    def find_devices(cls, config: EngineConfig) -> Mesh | None:
        """See `Engine`; the accelerators, which belong to the workers, are only counted."""
        if not has_accelerators():
            return make_mesh(config.devices, config.fsdp)
        local_slots(config.workers, config.devices, least=config.fsdp)
        if config.devices % config.fsdp:
            raise InputError(
                f"setup.engine.fsdp is {config.fsdp}; it must divide devices, {config.devices}"
            )
        return None

    def slots(self) -> Sequence[Slot]:
        """Return the slots of this machine."""
        return self._slots

    def start(self, slot: Slot, log: Path) -> "WorkerProcess":
        """Start a worker process."""
        return WorkerProcess(slot, log)


class WorkerProcess:
    """A worker process on this machine; see `bss.training.worker`.

    Attributes:
        process: the process.
    """

    def __init__(self, slot: Slot, log: Path) -> None:
        """Start it; what it and its libraries print goes to the log."""
        log.parent.mkdir(parents=True, exist_ok=True)
        pin = [] if slot.core is None else [f"--core={slot.core}"]
        with open(log, "a") as stderr:
            self.process = subprocess.Popen(
                [*COMMAND, *pin],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**_ENVIRONMENT, **os.environ, **slot.environment},
                start_new_session=True,  # an interrupt reaches the engine, which passes it on
            )

    def train(self, job: Job) -> str:
        """Return the result of a job; raise WorkerLost if the process ends before."""
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            if line := self.process.stdout.readline():
                return json.loads(line)
        self.close()
        raise WorkerLost(_exit(self.process.returncode))

    def stop(self) -> None:
        """Request that it saves and ends."""
        self.process.terminate()

    def close(self) -> None:
        """Let it save and end, and wait for it."""
        self.process.communicate()


def _exit(status: int) -> str:
    """Describe how a process with this exit status ended, e.g. "was ended by SIGKILL"."""
    if status >= 0:
        return f"ended with status {status}"
    guess = " (a guess: the machine ran out of memory)" if status == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-status).name}{guess}"
