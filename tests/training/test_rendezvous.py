"""Processes meet, or each of them ends with one line that names who did not come."""

import contextlib
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bss.errors import InputError
from bss.training.rendezvous import await_processes, join


@pytest.fixture
def port():
    with socket.create_server(("localhost", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def together():
    """Call functions at once; return their results, or the messages of their errors."""

    def call(*functions):
        with ThreadPoolExecutor(len(functions)) as pool:
            return [one.exception() for one in [pool.submit(f) for f in functions]]

    return call


def test_all_come_and_the_port_is_free_afterwards(port, together):
    others = [lambda p=p: join("localhost", port, p, 5) for p in (2, 1)]
    ended = together(*others, lambda: await_processes(port, 3, 5))
    assert ended == [None, None, None]
    socket.create_server(("localhost", port)).close()


def test_who_did_not_come_is_named_in_every_process(port, together):
    with pytest.raises(InputError) as alone:
        await_processes(port, 2, 0.1)
    expected = "1 of 2 processes connected within 0.1 seconds; start process 1 or raise"
    assert str(alone.value) == f"{expected} --init-timeout"
    ended = together(lambda: await_processes(port, 5, 0.6), lambda: join("localhost", port, 3, 2))
    for error in ended:
        assert isinstance(error, InputError)
        assert str(error) == (
            "2 of 5 processes connected within 0.6 seconds; "
            "start processes 1, 2 and 4 or raise --init-timeout"
        )


def test_strangers_and_processes_that_have_left_are_not_counted(port, together):
    def visit(greeting):
        def connect():
            for _ in range(100):
                with contextlib.suppress(OSError):
                    with socket.create_connection(("localhost", port)) as connection:
                        connection.sendall(greeting)
                    return

        return connect

    greetings = (b"GET / HTTP/1.0\r\n", b"", b"bss process 7\n", b"bss process 0\n")
    visits = [visit(greeting) for greeting in (*greetings, b"bss process 1\n")]
    ended = together(lambda: await_processes(port, 3, 1.0), *visits)
    assert str(ended[0]).startswith("1 of 3 processes connected within 1 seconds")


def test_a_missing_coordinator_and_a_taken_port_are_named(port):
    with pytest.raises(InputError, match=f"localhost:{port} cannot be reached within 0.3 seconds"):
        join("localhost", port, 1, 0.3)
    with (
        socket.create_server(("", port)),
        pytest.raises(InputError, match=f"cannot listen at port {port} .*another port"),
    ):
        await_processes(port, 2, 0.3)


@pytest.mark.slow
def test_process_0_alone_ends_with_one_line_and_status_2(port, tmp_path):
    config = tmp_path / "run.json"
    config.write_text(json.dumps({"model": "pico", "text": {"corpus": "synthetic"}}))
    where = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", "0"]
    command = [sys.executable, "-m", "bss", "train", str(config), *where, "--init-timeout", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    expected = (
        "1 of 2 processes connected within 1 seconds; start process 1 or raise --init-timeout"
    )
    assert line == f"bss train: {expected}"
    assert done.stdout == ""
