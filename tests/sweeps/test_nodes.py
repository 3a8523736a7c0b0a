"""Errors of a machine or a cluster that cannot train."""

import errno
import fcntl
import socket
import sys

import pytest

from bss.errors import InputError
from bss.sweeps.cluster import RayEngine, _check_reachable
from bss.sweeps.setup import EngineConfig
from bss.training.run_directory import open_run


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
        with pytest.raises(InputError, match=f"no Ray cluster answers at '{address}' .*HOST:PORT"):
            _check_reachable(address)
    with pytest.raises(InputError, match=r"address: .*'head'.*HOST:PORT"):
        _check_reachable("head")
