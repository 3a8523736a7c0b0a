"""Several processes that train a run together, each with its own devices.

Every process runs the same program on the same values, reads its own rows of each batch and takes
part in every save. Process 0 alone writes the run's directory. An error or a request to stop in one
process is sent to all before any acts on it. So no process waits for another that has left.
"""

import contextlib
import faulthandler
import hashlib
import json
import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bss.errors import InputError, check_least
from bss.training import rendezvous
from bss.training.optimizers import StepSettings
from bss.training.step import Metrics, State, Step

T = TypeVar("T")

_TEXT_BYTES = 16384
_SHOWN = 60
_HEARTBEAT_SECONDS = 30
VISIBLE_SECONDS = 90
"""How long a network file system may hide what another machine has written (NFS: 30 to 60 s)."""


class Interrupted(Exception):
    """The runs received a request to stop, and their states are saved."""


class MultihostError(InputError):
    """An error that all processes raise together; process 0 reports it."""


class HostAction(IntEnum):
    """A request of a process after a step; all processes take the maximum of the requests."""

    NONE = 0
    SAVE = 1
    STOP = 2
    FAIL = 3


@dataclass(frozen=True)
class DistributedConfig:
    """The processes that train a run together, and the index of this one.

    Attributes:
        processes: number of processes.
        coordinator: HOST:PORT of process 0; "auto" if Slurm, a TPU pod or Open MPI provides it and
            the other fields; empty for one process.
        process: index of this process, from 0.
        init_timeout: seconds in which all processes must connect.

    Raises:
        InputError: If the fields do not identify a process.
    """

    processes: int = 1
    coordinator: str = ""
    process: int | None = None
    init_timeout: float = 60.0

    def __post_init__(self) -> None:
        check_least("distributed", self, processes=1, init_timeout=1)
        if self.coordinator == "auto" or (not self.coordinator and self.processes == 1):
            return
        host, _, port = self.coordinator.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise InputError(
                f"coordinator is {self.coordinator!r}; expected HOST:PORT, of a port from 1 to "
                "65535, or auto"
            )
        if self.process is None or not 0 <= self.process < self.processes:
            raise InputError(
                f"process is {self.process} of {self.processes}; with a coordinator, give the "
                "number of processes, and which one this is, from 0"
            )


@contextlib.contextmanager
def initialized(config: DistributedConfig) -> Iterator[None]:
    """Connect this process to the others for this block; do nothing without a coordinator.

    Raises:
        InputError: If they do not connect in time.
    """
    if not config.coordinator:
        yield
        return
    _initialize(config)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to stdout
    try:
        yield
    except MultihostError:
        jax.distributed.shutdown()
        if is_primary():
            raise
        sys.exit(2)
    except (InputError, Interrupted, KeyboardInterrupt, SystemExit):
        jax.distributed.shutdown()
        raise
    except BaseException:  # the other processes do not know, so a shutdown would wait for them
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    jax.distributed.shutdown()


def _initialize(config: DistributedConfig) -> None:
    known = config.coordinator != "auto"
    if known:
        _meet(config)
    named: dict[str, Any] = {}
    if known:
        named = {
            "coordinator_address": config.coordinator,
            "num_processes": config.processes,
            "cluster_detection_method": "deactivate",
        }
    try:
        jax.distributed.initialize(
            **named,
            process_id=config.process,
            initialization_timeout=int(config.init_timeout),
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        why = "no Slurm step, TPU pod or Open MPI is found; give HOST:PORT"
        why = str(error) if known else why
        raise InputError(f"coordinator {config.coordinator}: {why}") from None


def _meet(config: DistributedConfig) -> None:
    """Wait until all processes of a known coordinator are there."""
    host, _, port = config.coordinator.rpartition(":")
    host = host.strip("[]")
    deadline = time.monotonic() + config.init_timeout
    if not config.process:
        rendezvous.await_processes(int(port), config.processes, config.init_timeout)
        return
    rendezvous.join(host, int(port), config.process, config.init_timeout)
    # Process 0 has freed the port, and starts JAX's own service there.
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=config.init_timeout).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise InputError(
                    f"coordinator {config.coordinator} left before its service started ({error}); "
                    "start all processes again, or raise --init-timeout"
                ) from None
        time.sleep(0.2)


def is_multihost() -> bool:
    """Return True if several processes train together. It does not start JAX's backend."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_primary() -> bool:
    """Return True in the process that writes: process 0, or the only one."""
    return not is_multihost() or jax.process_index() == 0


def log_primary(text: str) -> None:
    """Print a line to stderr, in process 0 only."""
    if is_primary():
        print(text, file=sys.stderr, flush=True)


def gather_text(text: str) -> list[str]:
    """Return the text of each process, in their order; each is cut to 16384 bytes."""
    if not is_multihost():
        return [text]
    written = np.frombuffer(text.encode()[:_TEXT_BYTES], np.uint8)
    padded = np.pad(written, (0, _TEXT_BYTES - len(written)))
    rows = multihost_utils.process_allgather(padded)
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in rows]


def on_all_hosts(function: Callable[[], T]) -> T:
    """Call a function in every process, and return when all have returned.

    Raises:
        MultihostError: In all processes, if the function raises InputError or OSError in any.
    """
    if not is_multihost():
        return function()
    result = None
    problem = ""
    try:
        result = function()
    except (InputError, OSError) as error:
        problem = error_line(error)
    problems = gather_text(problem)
    for process, text in enumerate(problems):
        if text:
            raise MultihostError(text if len({*problems}) == 1 else f"process {process}: {text}")
    return result  # type: ignore[return-value]


def process_0_first(function: Callable[[], T]) -> T:
    """Call a function in process 0, then in the others, which find the files it wrote."""
    result = on_all_hosts(lambda: function() if is_primary() else None)
    return on_all_hosts(lambda: function() if result is None else result)


def error_line(error: Exception) -> str:
    """Return an error as one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def assert_same(facts: Mapping[str, Any]) -> None:
    """Raise MultihostError if a process differs from process 0 in a fact (plain values)."""
    if difference := _difference(facts):
        hint = "start all processes of a run by the same command, at the same commit"
        raise MultihostError(f"{difference}; {hint}")


def await_same(look: Callable[[], Mapping[str, Any]], seconds: float = VISIBLE_SECONDS) -> None:
    """As `assert_same` for facts on a disk, repeated until all processes see the same."""
    difference = ""
    for _ in range(round(seconds)):  # the same number of times in all processes
        if not (difference := _difference(look())):
            return
        time.sleep(1)
    hint = "give a runs directory on a file system that all processes share"
    raise MultihostError(f"{difference}; {hint}")


def _difference(facts: Mapping[str, Any]) -> str:
    """Return the first fact in which a process differs from process 0; "" if there is none."""
    everyones = [json.loads(text) for text in gather_text(json.dumps(_shortened(facts)))]
    for name in {name: 0 for own in everyones for name in own}:
        for process, own in enumerate(everyones):
            if own.get(name) != everyones[0].get(name):
                here = own.get(name, "missing")
                there = everyones[0].get(name, "missing")
                return f"{name} is {here} in process {process} and {there} in process 0"
    return ""


def _shortened(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return facts as texts; a long one is replaced by its hash."""
    texts = {name: x if isinstance(x, str) else json.dumps(x) for name, x in facts.items()}
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return {name: text if len(text) <= _SHOWN else hashes[name] for name, text in texts.items()}


def with_host_action(step: Step) -> Callable[..., tuple[State, Metrics]]:
    """Return a step that also takes each device's `HostAction`, [D], and returns their maximum."""

    def agreed(
        state: State,
        sequences_NxbxT1: jax.Array,
        count: jax.Array,
        settings: StepSettings,
        actions_D: jax.Array,
    ) -> tuple[State, Metrics]:
        state, metrics = step(state, sequences_NxbxT1, count, settings)
        return state, metrics._replace(action=jnp.max(actions_D))

    return agreed


def host_action_shapes(mesh: Mesh) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return the additional arguments of a step of several processes; () for one process."""
    if not is_multihost():
        return ()
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    return (jax.ShapeDtypeStruct((mesh.size,), jnp.int32, sharding=sharding),)


def host_action_arguments(action: HostAction, mesh: Mesh) -> tuple[jax.Array, ...]:
    """Return values of `host_action_shapes`, in which each process fills its own part."""

    def own(index: Any) -> np.ndarray:
        return np.full(mesh.size, action, np.int32)[index]

    shapes = host_action_shapes(mesh)
    return tuple(jax.make_array_from_callback(x.shape, x.sharding, own) for x in shapes)


class HangGuard:
    """Ends the process, with its stacks, if nothing happens for a time: a device hangs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._armed_at = -math.inf

    def watch(self) -> None:
        """Start the time again, at most once a second."""
        if self._seconds and time.monotonic() - self._armed_at > 1:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=2)
            self._armed_at = time.monotonic()

    def pause(self) -> None:
        """Stop the time until the next `watch`."""
        faulthandler.cancel_dump_traceback_later()
        self._armed_at = -math.inf

    close = pause
