"""`bss train` in several processes, and again: bad input is one line before anything starts."""

import dataclasses
import json
import re
import socket

import pytest

from bss.cli import main
from bss.errors import InputError
from bss.training.devices.launch import Joining
from bss.values import to_dict
from experiments.main import _check_restarts
from experiments.train.__main__ import Study

UNSAVED = (
    "checkpoint_seconds is 1e+09, so a run would begin again at its start; write 86400 or less"
)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--restarts 3", f"--restarts 3: execution.{UNSAVED}"),
        (
            "--processes 2 --process 0 --coordinator here:65536",
            "coordinator is here:65536; expected HOST:PORT, of a port from 1 to 65535, or auto",
        ),
        (
            "--processes 2 --process 1 --patience 1 --coordinator 127.0.0.1:FREE",
            "within 1 seconds ([Errno 111] Connection refused); start process 0 there, or raise",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    tiny_run, tiny_execution, tmp_path, capsys, options, told
):
    file = tmp_path / "job.json"
    job = {"run": to_dict(tiny_run), "execution": dataclasses.asdict(tiny_execution)}
    file.write_text(json.dumps(job))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        options = options.replace("FREE", str(silent.getsockname()[1]))
        assert main(["train", str(file), *options.split()]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_an_experiment_that_saves_too_rarely_is_not_started_again():
    study = Study(checkpoint_seconds=1e9)
    with pytest.raises(InputError, match=re.escape(f"--restarts 2: config.{UNSAVED}")):
        _check_restarts(Joining(restarts=2), study)
    _check_restarts(Joining(), study)
