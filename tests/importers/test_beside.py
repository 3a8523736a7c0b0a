"""Settings of Hydra beside a log, heads of 64 kB, and Markdown among prose."""

import json
import os

import pytest

from bss.importers.log import HEAD, PART, head_of
from bss.tables import read_runs
from tests.cli.called import printed, refused

ROWS = "".join(f"{step},{5 - step / 100}\n" for step in range(10, 110, 10))
CONFIG = """\
data: {{seq_len: 64, val: {{batch_size: 32}}}}
{batch}
optimizer: {{_target_: torch.optim.AdamW, lr: 0.002}}
seed: 7
"""


def job_of(tmp_path, batch: str, below: str = "csv_logs/version_0"):
    job = tmp_path / "outputs" / "12-00-00"
    (job / ".hydra").mkdir(parents=True)
    (job / ".hydra" / "config.yaml").write_text(CONFIG.format(batch=batch))
    log = job / below / "metrics.csv"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("step,loss\n" + ROWS)
    return ["import", "auto", str(log), "-o", str(tmp_path / "o.csv")]


def test_batch_length_rate_and_seed_of_hydra(tmp_path, capsys):
    [run] = printed(capsys, *job_of(tmp_path, "train: {global_batch_size: 8}"))["runs"]
    table = read_runs(tmp_path / "o.csv")
    assert (run["batch"], run["seq_len"], run["tokens"]) == ("8", 64, 100 * 8 * 64)
    assert {*table["peak_lr"]} == {0.002} and {*table["seed"]} == {7}


def test_settings_that_have_changed_are_read_again(tmp_path, capsys):
    command = job_of(tmp_path, "batch_size: 8")
    settings = tmp_path / "outputs/12-00-00/.hydra/config.yaml"
    for batch in (8, 16):
        settings.write_text(CONFIG.format(batch=f"train: {{global_batch_size: {batch}}}"))
        os.utime(settings, ns=(0, batch))  # two writes can share a tick of the clock
        [run] = printed(capsys, *command)["runs"]
        assert run["batch"] == str(batch)


def test_a_batch_that_may_be_of_a_device_is_told_and_replaced(tmp_path, capsys):
    command = job_of(tmp_path, "batch_size: 8")
    [run] = printed(capsys, *command)["runs"]
    assert run["batch"] == "8" and any("if that is per device" in note for note in run["notes"])
    [run] = printed(capsys, *command, "--batch", "32")["runs"]
    assert run["batch"] == "32"


def test_a_batch_of_several_parts_is_not_guessed(tmp_path, capsys):
    more = "batch_size: 8\ntrainer: {accumulate_grad_batches: 4}"
    assert "give --batch" in refused(capsys, *job_of(tmp_path, more, below="."))


def test_a_head_is_whole_lines_of_64_kilobytes(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"line {i:06d} of a long log\n" for i in range(20_000)))
    lines = head_of(path).splitlines()
    assert len(head_of(path)) <= HEAD + 2 * PART == 2**16
    assert {len(line) for line in lines} == {len(lines[0])} and lines[-1].startswith("line 019999")


def test_a_header_longer_than_the_beginning_of_a_head(tmp_path, capsys):
    others = ",".join(f"layer_{i}/grad_norm_of_its_weights" for i in range(1100))
    rows = "".join(f"{s},{'0,' * 1100}{5 - s / 100}\n" for s in range(10, 210, 10))
    (tmp_path / "a.csv").write_text(f"step,{others},loss\n{rows}")
    assert len(others) > HEAD and (tmp_path / "a.csv").stat().st_size > HEAD + 2 * PART
    command = ["import", "auto", str(tmp_path / "a.csv"), "-o", str(tmp_path / "o.csv")]
    [run] = printed(capsys, *command, "--batch", "8", "--seq-len", "64")["runs"]
    assert (run["rows"], run["steps"]) == (20, 200)


@pytest.mark.parametrize("cell", ["", "| 30 | 4.0 | 9 |"])
def test_a_row_of_markdown_with_another_width_is_refused(tmp_path, capsys, cell):
    rows = [f"| {step} | {5 - step / 50} |" for step in (10, 20, 40, 50)]
    text = "# Run\n\n| step | loss |\n|---|---|\n" + "\n".join(
        [*rows[:2], cell or rows[2], *rows[2:]]
    )
    (tmp_path / "a.md").write_text(text + "\n")
    command = ["import", "auto", str(tmp_path / "a.md"), "-o", str(tmp_path / "o.csv")]
    command += ["--batch", "8", "--seq-len", "64"]
    if cell:
        assert "line 7: has 3 cells; expected 2" in refused(capsys, *command)
        return
    [run] = printed(capsys, *command)["runs"]
    assert (run["rows"], run["steps"]) == (4, 50)


def test_a_notebook_without_the_table_of_the_trainer(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("step,loss\n" + ROWS)
    cell = {"outputs": [{"output_type": "stream", "text": ["iter 0: loss 4.2, time 9.1ms\n"] * 9}]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}, indent=1))
    command = ["import", "auto", str(tmp_path), "-o", str(tmp_path / "o.csv")]
    told = printed(capsys, *command, "--batch", "8", "--seq-len", "64")
    assert len(told["runs"]) == 1 and not told["unread"]
