"""How several processes come to train one run: each joins the others at a coordinator.

Once joined, a process leaves with the others. Where one dies the others end too, with one line, and
nothing is lost but what came after the last checkpoint: the same command continues, in any number
of processes.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import jax

from bss.errors import InputError, check_least
from bss.training.devices.native_log import END
from bss.training.devices.processes import AgreedError, first
from bss.training.devices.watchdog import LOST
from bss.training.running.loop import Interrupted

DIED = (
    "another process of this run has died or cannot be reached; the same command continues from "
    "the last checkpoint, in any number of processes"
)
_OF_ANOTHER = ("Gloo", "NCCL", "oordination", "arrier", "heartbeat")
STARTER = "BSS_STARTED_BY"
"""Names the process that started this one, which leaves with it."""
_HEARTBEAT_SECONDS = 30
_LEAVE_SECONDS = 60


@dataclass(frozen=True)
class Joining:
    """Which processes train a run, and which of them this one is.

    Attributes:
        processes: how many; where no coordinator is named, they are started on this machine.
        coordinator: HOST:PORT, at which the first process can be reached by all; "auto" where
            Slurm, a TPU pod or Open MPI tells it, and the rest.
        process: which one this is, from 0.
        patience: seconds in which all must have come together.
        restarts: how often they are started again where one is lost.

    Raises:
        InputError: on construction, where that cannot be.
    """

    processes: int = 1
    coordinator: str = ""
    process: int | None = None
    patience: float = 60.0
    restarts: int = 0

    def __post_init__(self) -> None:
        check_least("joining", self, processes=1, patience=1, restarts=0)
        if self.coordinator in ("", "auto"):
            return
        host, _, port = self.coordinator.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise InputError(
                f"coordinator is {self.coordinator}; expected HOST:PORT, of a port from 1 to "
                "65535, or auto"
            )
        if self.process is None or not 0 <= self.process < self.processes:
            raise InputError(
                f"process is {self.process} of {self.processes}; with a coordinator, give the "
                "number of processes, and which one this is, from 0"
            )

    @property
    def to_be_started(self) -> bool:
        """Whether the processes are to be started, and watched, by this one."""
        return self.restarts > 0 or (self.processes > 1 and not self.coordinator)


@contextlib.contextmanager
def joined(joining: Joining) -> Iterator[None]:
    """In this block the process trains with the others; alone where no coordinator is named.

    Raises:
        InputError: where they do not come together in time.
    """
    if starter := os.environ.get(STARTER):
        threading.Thread(target=_leave_without, args=[int(starter)], daemon=True).start()
    if not joining.coordinator:
        yield
        return
    _join(joining)
    try:
        yield
    except (AgreedError, Interrupted, KeyboardInterrupt, SystemExit):
        if not first():
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the first tells it
        jax.distributed.shutdown()  # all know, and leave together
        raise
    except InputError:
        jax.distributed.shutdown()
        raise
    except BaseException as error:  # the others are not told, so they are not waited for
        another = any(sign in str(error) for sign in _OF_ANOTHER)
        if another:
            os.write(2, f"{END}\n".encode())  # JAX may find out at the same time
        else:
            traceback.print_exception(error)
        sys.stdout.flush()
        os._exit(LOST if another else 1)
    jax.distributed.shutdown()


def _leave_without(starter: int) -> None:
    """Stops this process when its parent is no longer the one that started it."""
    while os.getppid() == starter:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _join(joining: Joining) -> None:
    known = joining.coordinator != "auto"
    if known:
        (_reach if joining.process else _check_free)(joining.coordinator, joining.patience)
    missing = (
        f"the processes have not come together at the coordinator, {joining.coordinator}, within "
        f"{joining.patience:g} seconds; start all of them at once, or raise --patience"
    )
    _filter_native_log(missing)
    # JAX would end this process by SIGABRT, whose status says nothing.
    late = threading.Timer(joining.patience, _leave_alone, [missing])
    late.daemon = True
    late.start()
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    try:
        jax.distributed.initialize(
            joining.coordinator if known else None,
            joining.processes if known else None,
            joining.process,
            cluster_detection_method="deactivate" if known else None,
            initialization_timeout=int(joining.patience) + _LEAVE_SECONDS,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_LEAVE_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        why = "no Slurm step, TPU pod or Open MPI is found; give HOST:PORT"
        why = str(error) if known else why
        raise InputError(f"coordinator {joining.coordinator}: {why}") from None
    finally:
        late.cancel()


def _leave_alone(missing: str) -> None:
    """Ends this process, which has waited for the others as long as it was told."""
    sys.stderr.write(f"{missing}\n")
    sys.stderr.flush()
    os._exit(2)


def _check_free(coordinator: str, _: float) -> None:
    """Refuses a port of this machine that another program has."""
    port = int(coordinator.rpartition(":")[2])
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("", port))
        except OSError as error:
            raise InputError(
                f"coordinator {coordinator}: port {port} cannot be had here ({error.strerror}); "
                "name another, the same for all processes"
            ) from None


def _reach(coordinator: str, patience: float) -> None:
    """Waits until the coordinator answers; JAX would end this process where it does not."""
    host, _, port = coordinator.rpartition(":")
    deadline = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=patience).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise InputError(
                    f"coordinator {coordinator} cannot be reached within {patience:g} seconds "
                    f"({error}); start process 0 there, or raise --patience"
                ) from None
        time.sleep(0.2)


def _filter_native_log(missing: str) -> None:
    """Sends what libraries print to `native_log`; what Python prints goes where it went.

    JAX ends a process from C++, with forty lines, where another has died.
    """
    command = [sys.executable, "-m", "bss.training.devices.native_log", DIED, missing]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert reader.stdin
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sys.stdout, sys.stderr = (os.fdopen(os.dup(fd), "w", buffering=1) for fd in (1, 2))
    for fd in (1, 2):
        os.dup2(reader.stdin.fileno(), fd)
