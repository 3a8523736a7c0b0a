"""What a node must share with the machine of a sweep; what is said where there is no cluster."""

import errno
import fcntl
import socket
import sys

import pytest

from bss.errors import InputError
from bss.sweeps.cluster import RayEngine, _check_reachable
from bss.sweeps.setup import EngineConfig
from bss.sweeps.workers import Probe, held_probe, lacks
from bss.training.run_directory import open_run


def test_a_node_that_lacks_nothing(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/manifest.json").touch()
    with held_probe(tmp_path / "runs") as probe:
        assert lacks(tmp_path, probe, "data") == lacks(tmp_path, probe, "") == ""
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda p: (p._replace(path=p.path.parent / "elsewhere" / "probe"), ""), "the runs in"),
        (lambda p: (p._replace(text="of another sweep"), ""), "the runs in"),
        (lambda p: (p, "data"), "lacks the data, .*/data/manifest.json; copy it there"),
    ],
)
def test_a_node_without_the_runs_or_the_data(tmp_path, change, told):
    with held_probe(tmp_path / "runs") as probe:
        probe, data = change(probe)
        with pytest.raises(AssertionError, match=told):
            assert not lacks(tmp_path, probe, data)


def test_a_node_that_does_not_see_the_lock(tmp_path):
    free = Probe(tmp_path / "probe", "text")
    free.path.write_text("text")
    assert "does not see the locks" in lacks(tmp_path, free, "")


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    opened = open_run(tmp_path / "run")
    with pytest.raises(
        InputError, match=r"keeps no locks \(Function not implemented\).*; keep runs"
    ):
        opened.__enter__()


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InputError, match=r"Ray is not installed; pip install 'batch-size-scaling\[ray\]'"
    ):
        RayEngine(EngineConfig())


def test_a_cluster_that_does_not_answer(monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(InputError, match=f"no Ray cluster answers at {address} .*HOST:PORT"):
            _check_reachable(address)
    with pytest.raises(InputError, match="address is 'head'; write HOST:PORT"):
        _check_reachable("head")
