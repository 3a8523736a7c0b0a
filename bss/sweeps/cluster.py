"""The Ray engine: workers on every node of a cluster, as actors that this process assigns.

A worker is the process of the local engine, started by an actor on its node. Which run goes where
is decided here, not by Ray: a run whose actor or node was lost goes on from its checkpoint in
another slot.
"""

import contextlib
import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bss import install
from bss.errors import InputError
from bss.sweeps.engine import WorkerEngine, WorkerLost
from bss.sweeps.setup import EngineConfig
from bss.sweeps.workers import Event, NodeWorker, free_port, held_probe
from bss.training.execution import Execution
from bss.training.hardware import Slot, uses_cpu
from bss.training.run_directory import RunStatus

_CONNECT_SECONDS = 10
_START_SECONDS = 120


class RayEngine(WorkerEngine):
    """Trains runs on the nodes of a Ray cluster, which it has for itself."""

    def __init__(self, config: EngineConfig):
        """Connects.

        Raises:
            InputError: Ray is not installed, the cluster does not answer, or no node has as many
                devices.
        """
        super().__init__(config)
        self._ray = _connected(config.address)
        self._refused: dict[str, str] = {}
        self._told: set[str] = set()
        self._lost: set[str] = set()  # nodes on which a worker was, with whatever held it
        kinds = () if uses_cpu() else ("GPU", "TPU")
        self._kind = next((k for k in kinds if any(self._counts(k))), "CPU")
        self._devices = config.devices or config.fsdp if self._kind in kinds else 1
        if not any(count >= self._devices for count in self._counts(self._kind)):
            most = max(self._counts(self._kind), default=0)
            self.close()
            raise InputError(
                f"setup.engine.devices is {self._devices}; no node of the Ray cluster has more "
                f"than {most} {self._kind}s: ask for no more"
            )

    def slots(self) -> Sequence[Slot]:
        """Those of the nodes that live and lack nothing, the first of every node first."""
        for node in self._refused.keys() - self._told:
            self._told.add(node)
            warnings.warn(f"{self._refused[node]}; it is left out", RuntimeWarning, stacklevel=2)
        slots = []
        for node in self._nodes():
            count = int(node["Resources"].get(self._kind, 0)) // self._devices
            name = f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}"
            pinned = self.config.pin and self._kind == "CPU"
            environment = {"JAX_PLATFORMS": "cpu"} if uses_cpu() else {}
            slots += [
                Slot(f"{name}-{i}", i if pinned else None, environment, node["NodeID"])
                for i in range(count)
            ]
        slots.sort(key=lambda slot: int(slot.name.rpartition("-")[2]))
        return slots[: self.config.workers or None]

    def start(self, slot: Slot, log: Path, execution: Execution) -> "_RayWorker":
        """Starts a worker on the slot's node; one that lacks something is used no more."""
        actor = self._ray.remote(NodeWorker).options(**self._placed(slot)).remote()
        here = Path.cwd()
        try:
            with held_probe(Path(execution.runs)) as probe:
                started = actor.start.remote(slot, log.absolute(), here, probe, execution.data)
                lack = self._ray.get(started, timeout=_START_SECONDS)
        except (self._ray.exceptions.RayError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            lack = f"starts no worker ({type(error).__name__}: {reason})"
        if lack:
            self._told.update({slot.node} & self._lost)  # by the run that was lost there
            self._refused[slot.node] = f"node {slot.name.rpartition('-')[0]} {lack}"
            raise WorkerLost(RunStatus("failed", message=lack), begun=False)
        return _RayWorker(self._ray, actor, lambda: self._lost.add(slot.node))

    def coordinator(self, slot: Slot) -> str:
        """A port of the slot's node."""
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in self._nodes()}
        where = self._placed(slot)["scheduling_strategy"]
        port = self._ray.remote(free_port).options(num_cpus=0, scheduling_strategy=where).remote()
        try:
            return f"{nodes[slot.node]}:{self._ray.get(port, timeout=_START_SECONDS)}"
        except (self._ray.exceptions.RayError, KeyError):
            lost = RunStatus("failed", message=f"node {slot.name.rpartition('-')[0]} was lost")
            raise WorkerLost(lost, begun=False) from None

    def nowhere(self, runs: int) -> str:
        """Says what the nodes lack."""
        reasons = "; ".join(self._refused.values()) or "no node is left"
        return f"engine ray: {reasons}; {runs} runs are left, the same command continues"

    def close(self) -> None:
        """Ends the workers, and leaves the cluster."""
        super().close()
        self._ray.shutdown()

    def _nodes(self) -> list[dict[str, Any]]:
        nodes = self._ray.nodes()
        return [n for n in nodes if n["Alive"] and n["NodeID"] not in self._refused]

    def _counts(self, kind: str) -> list[int]:
        return [int(node["Resources"].get(kind, 0)) for node in self._nodes()]

    def _placed(self, slot: Slot) -> dict[str, Any]:
        """Options of an actor in a slot: its node and what it takes there."""
        strategies = self._ray.util.scheduling_strategies
        on_node = strategies.NodeAffinitySchedulingStrategy(slot.node, soft=False)
        taken = {
            "CPU": {"num_cpus": 1},
            "GPU": {"num_cpus": 0, "num_gpus": self._devices},
            "TPU": {"num_cpus": 0, "resources": {"TPU": self._devices}},
        }[self._kind]
        # A call waits while the worker trains; others stop and close it.
        return {"scheduling_strategy": on_node, "max_concurrency": 3, **taken}


class _RayWorker:
    """A worker on a node; see `bss.sweeps.workers.Worker`."""

    def __init__(self, ray: Any, actor: Any, lost: Callable[[], None]):
        self._ray, self._actor, self._lost = ray, actor, lost

    def train(self, job: dict[str, Any]) -> Iterator[Event]:
        with contextlib.suppress(self._ray.exceptions.RayError):  # the last event is missing then
            for event in self._actor.train.options(num_returns="streaming").remote(job):
                yield self._ray.get(event)

    def stop(self) -> None:
        self._actor.stop.remote()

    def close(self) -> str:
        try:
            how = self._ray.get(self._actor.close.remote(), timeout=_START_SECONDS)
        except self._ray.exceptions.RayError:
            self._lost()
            how = "died, or its node"
        self._ray.kill(self._actor)
        return how


def _connected(address: str) -> Any:
    """Ray, connected to a cluster."""
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.util.scheduling_strategies  # pyright: ignore[reportMissingImports]
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
    signal.signal(signal.SIGTERM, ours)  # Ray has put its own in its place
    # Of a dead node it would print forty lines; what they cost is told of each run.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself waits for long, and tells in many lines."""
    host, _, port = address.rpartition(":")
    expected = "write HOST:PORT, which `ray start --head` prints"
    if not host or not port.isdigit():
        raise InputError(f"setup.engine.address is {address!r}; {expected}")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise InputError(
            f"setup.engine.address: no Ray cluster answers at {address} ({error}); {expected}"
        ) from None
