"""Starts the processes of a run on this machine, watches all of them, and starts them again.

A process that is gone, by a signal or because a device or another process no longer answers, costs
what came after the last checkpoint. A mistake is not tried again.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from bss.errors import InputError
from bss.training.devices.launch import STARTER, Joining
from bss.training.devices.watchdog import LOST

FOLLOW_SECONDS = 20
LONGEST_UNSAVED = 86400
"""Seconds between checkpoints, at most, of a run that is to be started again."""


def start(joining: Joining) -> int:
    """Runs this program's own command in the processes that train a run, again where one is lost.

    Without a coordinator these are all, on this machine, on GPUs each with the one of its number;
    with one it is the process that this one would be. SIGINT and SIGTERM are passed on; where this
    process is killed they save and leave.

    Returns:
        The status to leave with: 0, or that of the first which failed.
    """
    started: list[subprocess.Popen] = []
    stopped: list[int] = []

    def pass_on(number: int, _: object) -> None:
        stopped.append(number)
        for process in started:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    status = 0
    for attempt in range(1, joining.restarts + 2):
        started[:] = _started(joining)
        status = _awaited(started)
        if stopped or attempt > joining.restarts or not _is_lost(started):
            break
        again = f"starting again from the last checkpoint ({attempt} of {joining.restarts})"
        print(f"note: {again}", file=sys.stderr, flush=True)
    return status


def check_restarts(restarts: int, seconds: float, field: str) -> None:
    """Refuses to start a run again that saves so rarely that it has nothing to continue from."""
    if restarts and seconds > LONGEST_UNSAVED:
        raise InputError(
            f"--restarts {restarts}: {field} is {seconds:g}, so a run would begin again at its "
            f"start; write {LONGEST_UNSAVED} or less"
        )


def death(status: int) -> str:
    """How a process ended that has this status, as "was ended by SIGKILL"; the cause is a guess."""
    if status >= 0:
        return f"ended with status {status}"
    guess = " (a guess: the machine ran out of memory)" if status == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-status).name}{guess}"


def free_port(host: str = "") -> int:
    """A port of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind((host, 0))
        return free.getsockname()[1]


def _started(joining: Joining) -> list[subprocess.Popen]:
    command = [sys.executable, *sys.orig_argv[1:]]
    command += ["--restarts=0"] if joining.restarts else []
    here = {**os.environ, STARTER: str(os.getpid())}
    if joining.coordinator or joining.processes == 1:
        return [subprocess.Popen(command, env=here)]
    coordinator = f"127.0.0.1:{free_port('127.0.0.1')}"
    here["JAX_COORDINATOR_BIND_ADDRESS"] = coordinator
    command.append(f"--coordinator={coordinator}")
    return [
        subprocess.Popen([*command, f"--process={i}"], env=here | {"JAX_LOCAL_DEVICE_IDS": str(i)})
        for i in range(joining.processes)
    ]


def _awaited(started: Sequence[subprocess.Popen]) -> int:
    """The status of processes once all have ended: of those left behind a failure, soon."""
    failed, deadline, stayed = 0, float("inf"), set[int]()
    while None in [process.poll() for process in started]:  # of each, not up to the first that runs
        failed = failed or next((p.returncode for p in started if p.returncode), 0)
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + FOLLOW_SECONDS
        if time.monotonic() > deadline:
            left = [i for i, process in enumerate(started) if process.poll() is None]
            stayed.update(left)
            for i in left:
                started[i].send_signal(signal.SIGKILL)
        time.sleep(0.05)
    for i, process in enumerate(started):
        if i in stayed:
            print(f"process {i} was ended: it stayed behind the others", file=sys.stderr)
        elif process.returncode < 0 and process.returncode != -signal.SIGABRT:  # JAX's, told above
            print(f"process {i} {death(process.returncode)}", file=sys.stderr)
    failed = failed or next((p.returncode for p in started if p.returncode), 0)
    return failed if failed >= 0 else 1


def _is_lost(started: Sequence[subprocess.Popen]) -> bool:
    """Whether processes ended by what another start may mend: none by a mistake."""
    failed = [process.returncode for process in started if process.returncode]
    return bool(failed) and all(status < 0 or status == LOST for status in failed)
