"""How processes join: what is refused before any is started, and what a starter makes of theirs."""

import signal
import sys

import pytest

from bss.errors import InputError
from bss.training.devices import launch
from bss.training.devices.launch import Joining, joined, start


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"processes": 0}, "joining.processes"),
        ({"patience": 0.5}, "joining.patience"),
        ({"coordinator": "here"}, "expected HOST:PORT, or auto"),
        ({"coordinator": "here:port"}, "expected HOST:PORT, or auto"),
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
    monkeypatch.setattr(launch, "time", clock)
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **__: each[next(numbers)])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert start(3) == status
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert clock.now == pytest.approx(until, abs=0.11)
    assert all(signal.SIGTERM in one.signals for one in each)
    assert ("process 2 was ended by SIGKILL" in capfd.readouterr().err) == (until == 25)


@pytest.fixture
def started(monkeypatch):
    """Starts so many processes of a code, which finds its arguments in sys.argv."""

    def run(code, processes=2):
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", f"import os, sys\n{code}"])
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return start(processes)
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
        ("os.kill(os.getpid(), 9)", 1, "process 0 was ended by SIGKILL"),
        ("os.kill(os.getpid(), 6)", 1, ""),
    ],
)
def test_the_status_is_that_of_the_first_that_failed(started, code, status, says, capfd):
    assert started(code) == status
    error = capfd.readouterr().err
    assert says in error and (says or "was ended" not in error)


def test_one_that_stays_behind_a_failure_is_ended(started, monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(launch, "FOLLOW_SECONDS", 0.2)
    code = (
        "import pathlib, time\n"
        "time.sleep(60) if sys.argv[2][-1] == '1' else sys.exit(5)\n"
        f"pathlib.Path({str(tmp_path)!r}, 'stayed').touch()\n"
    )
    assert started(code) == 5
    assert not (tmp_path / "stayed").exists()
    assert "process 1 was ended by SIGKILL" in capfd.readouterr().err
