"""How processes join: what is refused before any is started, and what a starter makes of theirs."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from bss.errors import InputError
from bss.training.devices import launch, starter
from bss.training.devices.launch import Joining, joined
from bss.training.devices.starter import death, start
from bss.training.devices.watchdog import LOST


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"processes": 0}, "joining.processes"),
        ({"patience": 0.5}, "joining.patience"),
        ({"coordinator": "here"}, "expected HOST:PORT, of a port"),
        ({"coordinator": "here:port"}, "expected HOST:PORT, of a port from 1 to 65535, or auto"),
        ({"coordinator": "here:65536"}, "is here:65536; expected HOST:PORT, of a port from 1"),
        ({"coordinator": "here:0"}, "coordinator is here:0; expected"),
        ({"coordinator": ":1234"}, "coordinator is :1234; expected"),
        ({"restarts": -1}, "joining.restarts is -1"),
        ({"coordinator": "here:1", "processes": 2}, "process is None of 2"),
        ({"coordinator": "here:1", "processes": 2, "process": 2}, "process is 2 of 2"),
        ({"coordinator": "here:1", "processes": 2, "process": -1}, "process is -1 of 2"),
    ],
)
def test_what_cannot_join_is_refused(settings, says):
    with pytest.raises(InputError, match=says):
        Joining(**settings)


def test_processes_are_started_here_where_no_coordinator_is_named():
    assert [Joining(processes).to_be_started for processes in (1, 2)] == [False, True]
    assert not Joining(2, "here:1", 0).to_be_started
    assert not Joining(2, "auto").to_be_started
    assert Joining(restarts=1).to_be_started
    assert Joining(2, "here:1", 0, restarts=1).to_be_started
    assert (Joining().processes, Joining().patience) == (1, 60.0)
    assert Joining(patience=1).patience == 1
    with joined(Joining()):
        pass


class Clock:
    """Time that passes only where it is slept."""

    now = 0.0

    def monotonic(self):
        """Seconds since it was made."""
        return self.now

    def sleep(self, seconds):
        """Lets them pass."""
        self.now += seconds


def test_a_coordinator_that_is_not_there_is_awaited_as_long_as_told(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(launch, "time", clock)
    with (
        pytest.raises(InputError, match=r"127.0.0.1:9 cannot be reached within 1 seconds"),
        joined(Joining(2, "127.0.0.1:9", 1, patience=1)),
    ):
        pass
    assert 1 < clock.now <= 1.21


class Started:
    """A process that ends by itself at some time of the clock, or when it is killed."""

    def __init__(self, clock, ends, status):
        self.clock, self.ends, self.status, self.signals = clock, ends, status, []

    @property
    def returncode(self):
        """None while it goes on."""
        killed = signal.SIGKILL in self.signals
        return -9 if killed else self.status if self.clock.now >= self.ends else None

    def poll(self):
        """As of a real one."""
        return self.returncode

    def send_signal(self, number):
        """Is noted."""
        self.signals.append(number)


@pytest.mark.parametrize(
    ("ends", "statuses", "status", "until"),
    [
        ((1, 2, 3), (0, 0, 0), 0, 3),
        ((1, 2, 3), (0, 4, 5), 4, 3),
        ((5, 1, 99), (3, 0, 0), 3, 25),  # twenty seconds behind the first that failed
        ((5, 1, 24), (3, 0, 7), 3, 24),
        ((1, 1, 1), (0, -6, 0), 1, 1),
    ],
)
def test_the_others_have_twenty_seconds_to_follow_one_that_failed(
    monkeypatch, capfd, ends, statuses, status, until
):
    clock, numbers = Clock(), iter(range(3))
    each = [Started(clock, *one) for one in zip(ends, statuses, strict=True)]
    monkeypatch.setattr(starter, "time", clock)
    monkeypatch.setattr(starter.subprocess, "Popen", lambda *_, **__: each[next(numbers)])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert start(Joining(3)) == status
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert clock.now == pytest.approx(until, abs=0.11)
    assert all(signal.SIGTERM in one.signals for one in each)
    stayed = "process 2 was ended: it stayed behind the others" in capfd.readouterr().err
    assert stayed == (until == 25)


@pytest.fixture
def started(monkeypatch):
    """Starts so many processes of a code, which finds its arguments in sys.argv."""

    def run(code, processes=2, restarts=0):
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", f"import os, sys\n{code}"])
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return start(Joining(processes, restarts=restarts))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    return run


def test_all_get_one_coordinator_and_a_number_each(started, tmp_path):
    code = (
        "place, number = sys.argv[1:]\n"
        f"with open({str(tmp_path)!r} + '/' + number[-1], 'w') as file:\n"
        "    local = os.environ['JAX_LOCAL_DEVICE_IDS']\n"
        "    bound = os.environ['JAX_COORDINATOR_BIND_ADDRESS']\n"
        "    print(place, number, local, bound, file=file)\n"
    )
    assert started(code, 3) == 0
    told = [(tmp_path / str(i)).read_text().split() for i in range(3)]
    place = told[0][3]
    assert place.startswith("127.0.0.1:")
    assert told == [[f"--coordinator={place}", f"--process={i}", str(i), place] for i in range(3)]


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        ("sys.exit(0)", 0, ""),
        ("sys.exit(3 if sys.argv[2][-1] == '1' else 0)", 3, ""),
        ("os.kill(os.getpid(), 9)", 1, "process 0 was ended by SIGKILL (a guess: the machine ran"),
        ("os.kill(os.getpid(), 11)", 1, "process 1 was ended by SIGSEGV\n"),
        ("os.kill(os.getpid(), 6)", 1, ""),
    ],
)
def test_the_status_is_that_of_the_first_that_failed(started, code, status, says, capfd):
    assert started(code) == status
    error = capfd.readouterr().err
    assert says in error and (says or "was ended" not in error)


def test_one_that_stays_behind_a_failure_is_ended(started, monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(starter, "FOLLOW_SECONDS", 0.2)
    code = (
        "import pathlib, time\n"
        "time.sleep(60) if sys.argv[2][-1] == '1' else sys.exit(5)\n"
        f"pathlib.Path({str(tmp_path)!r}, 'stayed').touch()\n"
    )
    assert started(code) == 5
    assert not (tmp_path / "stayed").exists()
    assert "process 1 was ended: it stayed behind the others" in capfd.readouterr().err


def test_the_death_of_a_later_process_is_seen_while_the_first_goes_on(started, monkeypatch):
    monkeypatch.setattr(starter, "FOLLOW_SECONDS", 0.2)
    began = time.monotonic()
    code = "import time\ntime.sleep(60) if sys.argv[2][-1] == '0' else os.kill(os.getpid(), 9)"
    assert started(code) == 1
    assert time.monotonic() - began < 20


COUNTING = """
*rest, place, number = sys.argv[1:]
with open(NOTES + "/" + number[-1], "a") as file:
    print(place, *rest, file=file)
starts = len(open(NOTES + "/" + number[-1]).readlines())
"""


@pytest.mark.parametrize(
    ("ending", "status", "starts"),
    [
        ("os.kill(os.getpid(), 9) if starts < 3 else None", 0, 3),
        (f"sys.exit({LOST} if starts < 2 else 0)", 0, 2),
        ("os.kill(os.getpid(), 9)", 1, 4),
        ("sys.exit(2)", 2, 1),  # a mistake
        ("sys.exit(143)", 143, 1),  # was asked to leave
    ],
)
def test_what_is_lost_is_started_again_and_a_mistake_is_not(
    started, tmp_path, capfd, ending, status, starts
):
    code = COUNTING.replace("NOTES", repr(str(tmp_path))) + ending
    assert started(code, restarts=3) == status
    noted = (tmp_path / "1").read_text().splitlines()
    assert len(noted) == starts
    assert len({*noted}) == starts  # a coordinator of its own each time
    told = capfd.readouterr().err
    assert told.count("note: starting again from the last checkpoint") == starts - 1
    assert (starts == 1) or f"({starts - 1} of 3)" in told


def test_with_a_coordinator_only_its_own_process_is_started(monkeypatch, tmp_path):
    code = f"import sys; open({str(tmp_path / 'asked')!r}, 'a').write(' '.join(sys.argv[1:]))"
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", code, "--process=1"])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert start(Joining(2, "here:1", 1, restarts=2)) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (tmp_path / "asked").read_text() == "--process=1 --restarts=0"


def test_how_a_process_ended():
    assert death(-9) == "was ended by SIGKILL (a guess: the machine ran out of memory)"
    assert (death(-11), death(3)) == ("was ended by SIGSEGV", "ended with status 3")


ALONE = """
import sys
from bss.training.devices.launch import Joining, joined
with joined(Joining(2, sys.argv[1], 0, 1)):
    pass
"""


def test_the_first_of_processes_that_never_come_together_leaves_with_one_line():
    place = f"127.0.0.1:{starter.free_port()}"
    done = subprocess.run([sys.executable, "-c", ALONE, place], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"the processes have not come together at the coordinator, {place}"
    )
    assert done.stderr.count("\n") == 1


def test_a_port_that_another_program_has_is_refused():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(InputError, match=f"port {port} cannot be had here .*name another"),
            joined(Joining(2, f"127.0.0.1:{port}", 0)),
        ):
            pass
