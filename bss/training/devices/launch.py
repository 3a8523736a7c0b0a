"""How several processes come to train one run: started on this machine, or joined to a cluster's.

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
from bss.training.running.loop import Interrupted

DIED = (
    "another process of this run has died or cannot be reached; the same command continues from "
    "the last checkpoint, in any number of processes"
)
_OF_ANOTHER = ("Gloo", "NCCL", "oordination", "arrier", "heartbeat")
_STARTER = "BSS_STARTED_BY"
_HEARTBEAT_SECONDS = 30
_LEAVE_SECONDS = 60
FOLLOW_SECONDS = 20


@dataclass(frozen=True)
class Joining:
    """Which processes train a run, and which of them this one is.

    Attributes:
        processes: how many; where no coordinator is named, they are started on this machine.
        coordinator: HOST:PORT, at which the first process can be reached by all; "auto" where
            Slurm, a TPU pod or Open MPI tells it, and the rest.
        process: which one this is, from 0.
        patience: seconds in which all must have come together.

    Raises:
        InputError: on construction, where that cannot be.
    """

    processes: int = 1
    coordinator: str = ""
    process: int | None = None
    patience: float = 60.0

    def __post_init__(self) -> None:
        check_least("joining", self, processes=1, patience=1)
        if self.coordinator in ("", "auto"):
            return
        if not self.coordinator.rpartition(":")[2].isdigit():
            raise InputError(f"coordinator is {self.coordinator}; expected HOST:PORT, or auto")
        if self.process is None or not 0 <= self.process < self.processes:
            raise InputError(
                f"process is {self.process} of {self.processes}; with a coordinator, give the "
                "number of processes, and which one this is, from 0"
            )

    @property
    def to_be_started(self) -> bool:
        """Whether the processes are to be started on this machine."""
        return self.processes > 1 and not self.coordinator


def start(processes: int) -> int:
    """Runs this program's own command in so many processes on this machine.

    On GPUs each has the one of its number. SIGINT and SIGTERM are passed on; where this process is
    killed they save and leave.

    Returns:
        The status to leave with: 0, or that of the first which failed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, *sys.orig_argv[1:], f"--coordinator={coordinator}"]
    here = {**os.environ, "JAX_COORDINATOR_BIND_ADDRESS": coordinator, _STARTER: str(os.getpid())}
    started = [
        subprocess.Popen(
            [*command, f"--process={process}"], env=here | {"JAX_LOCAL_DEVICE_IDS": str(process)}
        )
        for process in range(processes)
    ]

    def pass_on(number: int, _: object) -> None:
        for process in started:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    failed, deadline = 0, float("inf")
    while any(process.poll() is None for process in started):
        failed = failed or next((p.returncode for p in started if p.returncode), 0)
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + FOLLOW_SECONDS
        if time.monotonic() > deadline:
            pass_on(signal.SIGKILL, None)
        time.sleep(0.05)
    for index, process in enumerate(started):
        if process.returncode < 0 and process.returncode != -signal.SIGABRT:  # JAX's, told above
            name = signal.Signals(-process.returncode).name
            print(f"process {index} was ended by {name}", file=sys.stderr)
    failed = failed or next((p.returncode for p in started if p.returncode), 0)
    return failed if failed >= 0 else 1


@contextlib.contextmanager
def joined(joining: Joining) -> Iterator[None]:
    """In this block the process trains with the others; alone where no coordinator is named.

    Raises:
        InputError: where they do not come together in time.
    """
    if not joining.coordinator:
        yield
        return
    if starter := os.environ.get(_STARTER):
        threading.Thread(target=_leave_without, args=[int(starter)], daemon=True).start()
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
        if any(sign in str(error) for sign in _OF_ANOTHER):
            os.write(2, f"{END}\n".encode())  # JAX may find out at the same time
        else:
            traceback.print_exception(error)
        sys.stdout.flush()
        os._exit(1)
    jax.distributed.shutdown()


def _leave_without(starter: int) -> None:
    """Stops this process when its parent is no longer the one that started it."""
    while os.getppid() == starter:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _join(joining: Joining) -> None:
    known = joining.coordinator != "auto"
    if known and joining.process:
        _reach(joining.coordinator, joining.patience)
    missing = (
        f"the processes have not come together at the coordinator, {joining.coordinator}, within "
        f"{joining.patience:g} seconds; start all of them at once, or raise --patience"
    )
    _filter_native_log(missing)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    try:
        jax.distributed.initialize(
            joining.coordinator if known else None,
            joining.processes if known else None,
            joining.process,
            cluster_detection_method="deactivate" if known else None,
            initialization_timeout=int(joining.patience),
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_LEAVE_SECONDS,
        )
    except (ValueError, RuntimeError) as error:
        why = "no Slurm step, TPU pod or Open MPI is found; give HOST:PORT"
        why = str(error) if known else why
        raise InputError(f"coordinator {joining.coordinator}: {why}") from None


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
