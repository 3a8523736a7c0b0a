"""Processes meet before JAX connects them, because JAX aborts a process that waits in vain.

Process 0 listens at the coordinator's port, and every other process sends its number there. When
all have, process 0 frees the port for JAX and sends "go". If they do not come in time, process 0
sends the others the line with which it ends itself.
"""

import contextlib
import socket
import time
from collections.abc import Collection

from bss.errors import InputError

_GREETING = "bss process "
_GO = "go"
_GREETING_SECONDS = 2.0  # a stranger, such as a port scanner, may send nothing
_RETRY_SECONDS = 0.2
_MOST_BYTES = 1024


def await_processes(port: int, processes: int, seconds: float) -> None:
    """Wait, as process 0, until all other processes have connected.

    Args:
        port: the coordinator's.
        processes: number of processes, this one included.
        seconds: how long to wait.

    Raises:
        InputError: If some do not connect in time, or the port cannot be listened at.
    """
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as opened:
        joined: dict[int, socket.socket] = {}
        with _listen(port) as listener:
            while len(joined) < processes - 1:
                left = deadline - time.monotonic()
                if left <= 0:
                    line = _name_missing(joined, processes, seconds)
                    _send_all(joined, line)
                    raise InputError(line)
                listener.settimeout(left)
                with contextlib.suppress(OSError):  # nobody yet, or one that has left again
                    connection = opened.enter_context(listener.accept()[0])
                    number = _read_number(connection)
                    if 0 < number < processes:
                        joined[number] = connection
                joined = {number: one for number, one in joined.items() if _is_open(one)}
        _send_all(joined, _GO)


def join(host: str, port: int, process: int, seconds: float) -> None:
    """Connect to process 0, as another process, and wait until all have.

    Args:
        host: the coordinator's.
        port: the coordinator's.
        process: the number of this process.
        seconds: how long to wait.

    Raises:
        InputError: If process 0 cannot be reached in time, or the others do not come.
    """
    deadline = time.monotonic() + seconds
    problem = "it ended the connection"
    while (left := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection((host, port), timeout=left) as connection:
                connection.sendall(f"{_GREETING}{process}\n".encode())
                connection.settimeout(left + 1)  # process 0 says why, a little later
                answer = _read_line(connection)
        except OSError as error:
            problem = str(error)
            answer = ""
        if answer == _GO:
            return
        if answer:
            raise InputError(answer)
        time.sleep(_RETRY_SECONDS)
    raise InputError(
        f"coordinator {host}:{port} cannot be reached within {seconds:g} seconds ({problem}); "
        "start process 0 there, or raise --init-timeout"
    )


def _listen(port: int) -> socket.socket:
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise InputError(
            f"coordinator: process 0 cannot listen at port {port} ({error.strerror}); "
            "choose another port for all processes"
        ) from None


def _read_number(connection: socket.socket) -> int:
    """Return the number that another process sends; 0 for an unknown process."""
    connection.settimeout(_GREETING_SECONDS)
    number = _read_line(connection).removeprefix(_GREETING)
    return int(number) if number.isdecimal() else 0


def _read_line(connection: socket.socket) -> str:
    """Return a line without its end; "" if the connection ends before it does."""
    read = b""
    while not read.endswith(b"\n") and len(read) < _MOST_BYTES:
        part = connection.recv(_MOST_BYTES)
        if not part:
            return ""
        read += part
    return read.decode(errors="replace").strip()


def _is_open(connection: socket.socket) -> bool:
    """Return False if the process at the other end has ended."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _send_all(joined: dict[int, socket.socket], line: str) -> None:
    for connection in joined.values():
        with contextlib.suppress(OSError):  # it has ended, and the others need to know
            connection.setblocking(True)
            connection.sendall(f"{line}\n".encode())


def _name_missing(joined: Collection[int], processes: int, seconds: float) -> str:
    missing = [str(number) for number in range(1, processes) if number not in joined]
    names = f"process {missing[0]}"
    if len(missing) > 1:
        names = f"processes {', '.join(missing[:-1])} and {missing[-1]}"
    return (
        f"{len(joined) + 1} of {processes} processes connected within {seconds:g} seconds; "
        f"start {names} or raise --init-timeout"
    )
