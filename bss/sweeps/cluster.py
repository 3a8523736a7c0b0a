"""The Ray engine: workers on every node of a cluster, each an actor of Ray.

Runs are assigned here, not by Ray: a run whose actor or node was lost goes on from its checkpoint
in another slot. Run directories, data and the directory of the command are on a file system that
all nodes share, with locks between machines.
"""

import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.installation import install
from bss.sweeps.engine import SlotEngine, WorkerLost
from bss.sweeps.setup import EngineConfig
from bss.training.hardware import Slot, uses_cpu
from bss.training.worker import ActorWorker, Job

_CONNECT_SECONDS = 10
_DEATH_SECONDS = 60  # Ray declares a node dead after about 20 s without an answer


class RayEngine(SlotEngine):
    """Trains runs on the nodes of a Ray cluster, which nothing else uses."""

    def __init__(self, config: EngineConfig) -> None:
        """Connect.

        Raises:
            InputError: If Ray is not installed, the cluster does not answer, or no node has enough
                devices.
        """
        super().__init__(config)
        self._ray = _connected(config.address)
        kinds = () if uses_cpu() else ("GPU", "TPU")
        self._kind = next((k for k in kinds if any(self._counts(k))), "CPU")
        self.accelerators = self._kind != "CPU"
        self._devices = config.devices or config.fsdp if self.accelerators else 1
        if (most := max(self._counts(self._kind), default=0)) < self._devices:
            self.close()
            raise InputError(
                f"setup.engine.devices is {self._devices}; no node of the Ray cluster has more "
                f"than {most} {self._kind}s: ask for no more"
            )

    def slots(self) -> Sequence[Slot]:
        """Return the slots of the nodes that are alive, the first of every node first."""
        slots = []
        for node in self._nodes():
            count = int(node["Resources"].get(self._kind, 0)) // self._devices
            name = f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}"
            pinned = self.config.pin and not self.accelerators
            environment = {"JAX_PLATFORMS": "cpu"} if uses_cpu() else {}
            slots += [
                Slot(f"{name}-{i}", i if pinned else None, environment, node["NodeID"])
                for i in range(count)
            ]
        slots.sort(key=lambda slot: int(slot.name.rpartition("-")[2]))
        return slots[: self.config.workers or None]

    def start(self, slot: Slot, log: Path) -> "_RayWorker":
        """Start an actor on the slot's node."""
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = str(Path.cwd()), str(log), slot.core, dict(slot.environment)
        actor = self._ray.remote(ActorWorker).options(**self._placed(slot)).remote(*arguments)
        return _RayWorker(self._ray, actor)

    def close(self) -> None:
        """End the workers, and leave the cluster."""
        super().close()
        self._ray.shutdown()

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _counts(self, kind: str) -> list[int]:
        return [int(node["Resources"].get(kind, 0)) for node in self._nodes()]

    def _placed(self, slot: Slot) -> dict[str, Any]:
        """Return the options of an actor in a slot: its node and its resources."""
        strategies = self._ray.util.scheduling_strategies
        on_node = strategies.NodeAffinitySchedulingStrategy(slot.node, soft=False)
        resources = {
            "CPU": {"num_cpus": 1},
            "GPU": {"num_cpus": 0, "num_gpus": self._devices},
            "TPU": {"num_cpus": 0, "resources": {"TPU": self._devices}},
        }[self._kind]
        # One call trains while another stops it.
        return {"scheduling_strategy": on_node, "max_concurrency": 2, **resources}


class _RayWorker:
    """An actor that trains; see `SlotEngine`."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    def train(self, job: Job) -> str:
        try:
            result = self._ray.get(self._actor.train.remote(job))
        except self._ray.exceptions.RayActorError as error:
            self._wait_for_death()
            self._ray.kill(self._actor)
            reason = str(error).strip().splitlines()[-1].strip()
            raise WorkerLost(f"died, or its node ({reason:.200})") from None
        if result is None:
            self._ray.kill(self._actor)
            raise WorkerLost("was interrupted")
        return result

    def _wait_for_death(self) -> None:
        """Keep the slot until Ray knows whether the node is dead: it would get the next run."""
        errors = self._ray.exceptions
        for _ in range(_DEATH_SECONDS):
            try:
                self._ray.get(self._actor.__ray_ready__.remote(), timeout=_DEATH_SECONDS)
                return
            except errors.ActorUnavailableError:
                time.sleep(1)
            except (errors.RayActorError, errors.GetTimeoutError):
                return

    def stop(self) -> None:
        self._actor.stop.remote()

    def close(self) -> None:
        self._ray.kill(self._actor)


def _connected(address: str) -> Any:
    """Return the module of Ray, connected to a cluster."""
    try:
        import ray  # pyrefly: ignore[missing-import]
        import ray.util.scheduling_strategies  # pyrefly: ignore[missing-import]
    except ModuleNotFoundError:
        raise InputError(
            f"engine ray: Ray is not installed; {install('ray')}, on every node"
        ) from None
    address = address or os.environ.get("RAY_ADDRESS", "")
    if address not in ("", "auto", "local"):
        _check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster that starts here
    ours = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or None, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"setup.engine.address: Ray cannot be reached ({reason})") from None
    signal.signal(signal.SIGTERM, ours)  # Ray has replaced it
    # Ray prints forty lines about a dead node; each lost run has its own line here.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    return ray


def _check_reachable(address: str) -> None:
    """Raise InputError early: Ray itself waits for long, and prints many lines."""
    host, _, port = address.rpartition(":")
    expected = "write HOST:PORT, which `ray start --head` prints"
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InputError(
            f"setup.engine.address: no Ray cluster answers at {address!r} ({error}); {expected}"
        ) from None
