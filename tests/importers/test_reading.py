"""What readers tell apart: attempts, devices' batches, several held-out losses, users' names."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bss.errors import InputError
from bss.importers import LogOptions
from bss.importers.batches import Batches
from tests.cli.called import printed, refused
from tests.importers.imported import assert_same, expected, the_run
from tests.importers.writers import (
    FORMATS,
    SEQ_LEN,
    events,
    history_jsonl,
    llmc,
    rows_of_run,
    trainer_state,
)

EIGHT = LogOptions(Batches.parse(["8"]), SEQ_LEN)


def test_checkpoints_of_a_run_are_one(tmp_path):
    rows = rows_of_run(0, schedule="8")
    for n in (8, 20, 30):
        path = trainer_state(tmp_path, rows[:n])
        folder = tmp_path / "run" / f"checkpoint-{n}00"
        folder.mkdir()
        path.rename(folder / "trainer_state.json")
    table, report = the_run([tmp_path / "run"], EIGHT, "auto")
    assert_same(table, expected(rows, FORMATS["huggingface"]))
    assert report.run == "run" and report.duplicates > 0 and report.superseded == 0


def test_event_files_of_a_directory_are_attempts(tmp_path):
    rows = rows_of_run(0)
    abandoned = [{**row, "loss": row["loss"] + 1} for row in rows[:20]]
    events(tmp_path, abandoned)
    first = tmp_path / "run" / "events.out.tfevents.1700000000.host.1.0"
    first.rename(tmp_path / "run" / "events.out.tfevents.1600000000.host.1.0")
    events(tmp_path, rows[12:])
    table, report = the_run([tmp_path], LogOptions(seq_len=SEQ_LEN), "tensorboard")
    assert_same(table, expected(abandoned[:12] + rows[12:], FORMATS["tensorboard"]))
    assert (report.restarts, report.superseded) == (1, 8)


def test_names_join_the_attempts_of_a_run(tmp_path):
    rows = rows_of_run(0, schedule="8")
    for name, part in (("a-10", rows[15:]), ("a-2", rows[:18])):
        llmc(tmp_path, part).rename(tmp_path / f"{name}.log")
    options = LogOptions(EIGHT.batches, SEQ_LEN, r"(?P<run>\w)-\d+")
    table, report = the_run([tmp_path], options, "llm.c")
    wanted = expected(rows, FORMATS["llm.c"]).assign(run="a")
    assert_same(table, wanted)
    assert report.run == "a" and report.duplicates == 4 and len(report.sources) == 2


def test_the_batch_of_a_device_is_no_batch(tmp_path):
    path = history_jsonl(tmp_path, [])
    rows = [{"_step": i, "train/global_step": i, "train/loss": 4 - i / 10} for i in range(1, 9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text("per_device_train_batch_size: {desc: null, value: 4}\n")
    with pytest.raises(InputError, match="run run does not give its batch"):
        the_run([path], LogOptions(seq_len=SEQ_LEN), "wandb")


def test_one_of_several_held_out_losses_is_chosen(tmp_path):
    rows = [
        {"_step": i, "train/CE loss": 4 - i / 10, "eval/lm/a/CE loss": 4, "eval/lm/b/CE loss": 5}
        for i in range(1, 9)
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table, report = the_run([path], EIGHT, "olmo")
    assert "eval_loss" not in table and "choose with --columns eval_loss=NAME" in report.notes[0]
    chosen = LogOptions(EIGHT.batches, SEQ_LEN, columns={"eval_loss": "eval/lm/b/CE loss"})
    table, report = the_run([path], chosen, "olmo")
    assert set(table["eval_loss"]) == {5.0} and not report.notes


def test_metrics_of_other_names_are_named(tmp_path, capsys):
    path = tmp_path / "run.csv"
    path.write_text("_step,iter,ce,val_ce\n" + "".join(f"{i},{2 * i},{9 - i},\n" for i in range(5)))
    out = ["-o", str(tmp_path / "runs.csv"), "--batch", "8", "--seq-len", "64"]
    [run] = printed(capsys, "import", "wandb", str(path), *out, "--columns", "loss=ce,step=iter")[
        "runs"
    ]
    assert (run["steps"], run["rows"]) == (8, 5)
    told = refused(capsys, "import", "wandb", str(path), *out, "--columns", "loss=loss")
    assert "no metric loss for loss; it has _step, iter, ce, val_ce" in told


OWN = """
from bss.importers import LineFormat

MINE = LineFormat("mine", train=r"^(?P<step>\\d+) (?P<batch>\\d+) (?P<loss>\\S+)$",
                  settings=(r"^mine (?P<seq_len>\\d+)$",), known_by="^mine")
"""


def test_a_users_own_format(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_format.py").write_text(OWN)
    (tmp_path / "r.txt").write_text("mine 64\n1 8 4.5\n2 8 4.4\n3 16 4.2\n")
    [run] = printed(capsys, "import", "own_format:MINE", "r.txt", "-o", "runs.csv")["runs"]
    assert (run["batch"], run["tokens"], run["rows"]) == ("8 16", 2048, 3)


def test_tensorboard_is_an_extra(tmp_path, monkeypatch, capsys):
    path = str(events(tmp_path, rows_of_run(0)))
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_file_loader", None)
    told = refused(capsys, "import", "auto", path, "-o", str(tmp_path / "runs.csv"), "--seq-len=64")
    assert "pip install 'batch-size-scaling[tensorboard]'" in told


def test_no_jax_is_imported():
    code = "import bss.cli.import_, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def peak_of_import(folder: Path, runs: int, steps: int) -> int:
    """Bytes of memory that an import of so many runs takes at most, in a process of its own."""
    folder.mkdir()
    step = np.arange(1, steps + 1)
    rng = np.random.default_rng(0)
    loss = 2 + 5 * (512.0 * step) ** -0.08 + rng.normal(0, 0.02, steps)
    names = "_step,train/CE loss,optim/LR (group 0),throughput/total tokens\n"
    lines = (f"{i},{value:.6f},1e-3,{512 * i}\n" for i, value in zip(step, loss, strict=True))
    (folder / "r0.csv").write_text(names + "".join(lines))
    for i in range(1, runs):
        (folder / f"r{i}.csv").hardlink_to(folder / "r0.csv")
    # Not ru_maxrss, which a process inherits from the one that starts it.
    code = (
        "import sys; from bss.cli import main; main(sys.argv[1:]); "
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    out = folder / "runs.parquet"
    told = ["import", "olmo", str(folder), "-o", str(out), "--seq-len=64"]
    command = [sys.executable, "-c", code, *told]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert pq.read_metadata(out).num_rows == runs * steps
    return int(done.stdout.splitlines()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_rows_of_many_runs_are_imported_in_little_memory(tmp_path):
    few = peak_of_import(tmp_path / "few", 10, 5000)
    many = peak_of_import(tmp_path / "many", 200, 5000)
    assert many - few <= 83 * 190 * 5000  # bytes per row: 10^7 rows fit 1 GB
