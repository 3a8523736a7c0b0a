"""Files that no reader can read end in one line: nested deeply, a pipe, a device."""

import json
import os
from pathlib import Path

import pytest

from bss.cli import main
from bss.errors import InputError
from bss.models.sizes import named
from bss.training.run_config import RunConfig
from bss.training.run_directory import is_being_written, read_curve, read_executions
from bss.values import to_dict
from tests.cli.called import refused

READERS = [
    *("predict --loss 2 --from", "schedule --tokens 1M --from", "next", "train", "sweep --out o"),
    "advise --params 1M --tokens 1B --seq-len 64 --from",
]
TABLES = ["points", "fit es", "fit loss", "fit curve", "fit critical", "report"]


@pytest.mark.parametrize("command", READERS)
def test_deeply_nested_json_is_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for text in ("[" * 200_000, '{"a":' * 200_000):
        Path("deep.json").write_text(text)
        assert "deep.json: " in refused(capsys, *command.split(), "deep.json")


@pytest.mark.parametrize("command", READERS)
def test_a_pipe_is_not_waited_for(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")
    line = refused(capsys, *command.split(), "pipe.json")
    assert "pipe.json: is a pipe or a device; save what it has in a file" in line


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("command", TABLES)
def test_a_pipe_is_no_table(command, suffix, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(f"pipe{suffix}")
    assert "is a pipe or a device" in refused(capsys, *command.split(), f"pipe{suffix}")


def test_odd_files_of_a_run_directory_are_one_line(tmp_path, capsys):
    run = tmp_path / "0123456789ab"
    run.mkdir()
    (run / "config.json").write_text('{"model":' * 200_000)
    assert "config.json: " in refused(capsys, "runs", str(tmp_path))
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")
    assert "is a pipe or a device" in refused(capsys, "runs", str(tmp_path))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", ["status.json", "curve.jsonl", "execution.json", "ends.json", "lock"]
)
def test_a_pipe_in_a_run_directory_is_not_waited_for(name, tmp_path, capsys):
    run = RunConfig(named("nano", 256))
    folder = tmp_path / run.id
    folder.mkdir()
    texts = {"config.json": json.dumps(to_dict(run)), "status.json": '{"status": "finished"}'}
    texts["curve.jsonl"] = '{"step": 1, "tokens": 64, "loss": 3.0}\n'
    for file, text in texts.items():
        (folder / file).write_text(text)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for command in ("runs", "points"):
        assert main([command, str(tmp_path)]) in (0, 2)
    assert capsys.readouterr().err.count("Traceback") == 0


@pytest.mark.parametrize(
    ("name", "read"),
    [("curve.jsonl", read_curve), ("execution.json", read_executions), ("lock", is_being_written)],
)
def test_a_pipe_that_a_run_needs_is_refused(name, read, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: is a pipe or a device"):
        read(tmp_path)


def test_a_long_table_of_steps_is_refused_in_one_line(capsys):
    plan = ["plan", "--batch", "1", "--seq-len", "2048", "--tokens", "100B", "--lr", "1e-3"]
    line = refused(capsys, *plan, "--export", "csv")
    assert "export csv: 48,828,125 steps are more than the 2,000,000 rows of a table" in line


def test_an_export_without_a_learning_rate_has_none_of_1(tmp_path, monkeypatch):
    from bss.exports import EXPORTS, export
    from bss.schedules.batch import BatchSchedule
    from bss.schedules.plan import resolve

    plan = resolve(BatchSchedule((0, 4096), (1, 2)), 16384, 64)
    for trainer in EXPORTS:
        text = export(plan, trainer)
        assert "learning_rate: " not in text and "--lr" not in text
        if EXPORTS[trainer].program:
            assert "PEAK = None" in text
            names: dict = {}
            start, end = text.index("STEPS, SEQ_LEN"), text.index("return PEAK")
            code = "import math\nfrom bisect import bisect_right\n" + text[start:end]
            exec(code + "return PEAK * SCALE[i]\n", names)
            with pytest.raises(AssertionError, match="set PEAK"):
                names["rate"](0)
    assert json.dumps(plan.to_dict())


def test_an_export_that_cannot_follow_the_coupling_says_how_to(capsys):
    plan = ["plan", "--batch", "0:8 1M:32", "--seq-len", "64", "--tokens", "2M", "--lr", "1e-3"]
    coupled = [*plan, "--lr-coupling", "sqrt", "--export", "megatron"]
    how = "restart from a checkpoint at step 1954 (1000448 tokens) with the peak LR 0.002"
    assert how in refused(capsys, *coupled)
