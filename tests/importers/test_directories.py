"""A directory of logs and other files: every log is read or refused, other files are skipped."""

import gzip
import json
import os
import pickle
import socket

import pandas as pd
import pytest

from bss.cli import main
from bss.laws.final_loss.table import final_losses, loss_points
from bss.tables import read_runs
from tests.cli.called import printed, refused
from tests.importers.writers import SEQ_LEN

EIGHT = ("--batch", "8", "--seq-len", str(SEQ_LEN))
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
MAIN = "".join(f"s:{i} trl:{9 - i / 10} lr:1e-3 norm:1\n" for i in range(20))


def import_of(folder, *more: str) -> list[str]:
    out = str(folder.parent / "runs.csv")
    return ["import", "auto", str(folder), "-o", out, "--skip-unread", *EIGHT, *more]


@pytest.fixture
def folder(tmp_path):
    """Three runs, one diverged and one cut; files that hold no log."""
    place = tmp_path / "logs"
    place.mkdir()
    nan = "".join(f"s:{i} trl:nan lr:1e-3 norm:1\n" for i in range(20, 25))
    texts = {
        "good.log": MAIN.replace("trl:9 ", "trl:9.1 "),
        "worse.log": MAIN + nan,
        "cut.log": MAIN[:-20],
        "lfs.log": LFS,
        "empty.log": "",
        "README.md": MAIN,
        "train.py": MAIN,
        "notes.txt": "nothing\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    (place / "old.log.gz").write_bytes(gzip.compress(MAIN.encode()))
    (place / "weights.pt").write_bytes(pickle.dumps({}))
    return place


def reasons_of(printed_json):
    return {os.path.basename(one["file"]): one["reason"] for one in printed_json["skipped"]}


def test_every_file_is_read_or_skipped_with_its_reason(folder, capsys):
    read = printed(capsys, *import_of(folder))
    assert {run["run"]: (run["status"], run["rows"]) for run in read["runs"]} == {
        "cut": ("cut", 19),
        "good": ("finished", 20),
        "worse": ("diverged", 20),
    }
    reasons = reasons_of(read)
    assert len(reasons) == 7 and read["files"] == 10
    for name, text in {
        "lfs.log": "is a pointer of git LFS",
        "empty.log": "is empty",
        "old.log.gz": "is compressed; unpack it with gunzip",
        "weights.pt": "is not recognised",
        "README.md": "is not recognised",
        "train.py": "is not recognised",
        "notes.txt": "is not recognised",
    }.items():
        assert reasons[name].startswith(text), name
    status = read_runs(folder.parent / "runs.csv").groupby("run")["status"].first()
    assert status.dropna().to_dict() == {"worse": "diverged", "cut": "cut"}


def test_damaged_logs_and_named_files_are_refused_all_at_once(folder, capsys):
    lines = MAIN.splitlines(keepends=True)
    (folder / "broken.log").write_text("".join([*lines[:7], "s:7 trl:\n", *lines[8:]]))
    error = refused(capsys, *import_of(folder))
    assert "broken.log, line 8: is not a complete row" in error
    assert "README.md" not in error and not (folder.parent / "runs.csv").exists()
    named = [str(folder / name) for name in ("good.log", "lfs.log", "notes.txt", "absent.log")]
    error = refused(capsys, "import", "auto", *named, "-o", str(folder.parent / "r.csv"), *EIGHT)
    assert error.startswith("bss import: 3 are refused: ")
    assert all(s in error for s in ("git lfs pull", "is not recognised", "no such file"))


def test_what_is_no_file_is_never_opened(folder, capsys, monkeypatch):
    os.mkfifo(folder / "pipe.log")
    monkeypatch.chdir(folder)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s.log")
    (folder / "loop.log").symlink_to("loop.log")
    (folder / "lost.log").symlink_to("nowhere.log")
    (folder / "up").symlink_to("..")
    (folder / "latest.log").symlink_to("good.log")
    (folder / ".git").mkdir()
    (folder / ".git" / "a.log").write_text(MAIN)
    read = printed(capsys, *import_of(folder))
    reasons = reasons_of(read)
    assert len(read["runs"]) == 3 and len(reasons) == 14
    for name, text in {
        "pipe.log": "is a pipe, a socket or a device",
        "s.log": "is a pipe, a socket or a device",
        "loop.log": "cannot be read: Too many levels",
        "lost.log": "is a link to nothing",
        "up": "is a link to a directory",
        "latest.log": "is given twice",
        ".git": "is hidden",
    }.items():
        assert reasons[name].startswith(text), (name, reasons[name])
    error = refused(capsys, *import_of(folder / "pipe.log"))
    assert "pipe.log: is a pipe, a socket or a device; save it to a file" in error


def test_a_gap_of_nan_is_refused(folder, capsys):
    (folder / "gap.log").write_text(MAIN.replace("s:9 trl:8.1", "s:9 trl:nan"))
    assert "is NaN or infinite at step 10 and finite later" in refused(capsys, *import_of(folder))


def test_a_diverged_run_is_left_out_of_points_with_a_message(tmp_path, capsys):
    good = MAIN.splitlines(keepends=True)
    bad = [f"{line.split(':9')[0].split(':8')[0].split(':7')[0]}:nan\n" for line in good[12:]]
    (tmp_path / "good.log").write_text("".join(good))
    (tmp_path / "bad.log").write_text("".join([*good[:12], *bad]))
    out = str(tmp_path / "o.csv")
    given = ["--batch", "good=8", "--batch", "bad=16", "--seq-len", "64"]
    names = [str(tmp_path / "good.log"), str(tmp_path / "bad.log")]
    told = printed(capsys, "import", "auto", *names, "-o", out, *given)
    assert [run["status"] for run in told["runs"]] == ["finished", "diverged"]
    told = printed(capsys, "points", out, "--targets", "7.4")
    assert {(point["batch"], point["reached"]) for point in told["points"]} == {(8, True)}
    assert "1 runs diverged" in " ".join(told["warnings"])


def test_names_of_columns_are_for_what_has_names(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("it;ce\n1;5,5\n2;5,25\n3;5,0\n")
    out = ["-o", str(tmp_path / "o.csv"), *EIGHT]
    [run] = printed(
        capsys, "import", "auto", str(tmp_path / "a.csv"), *out, "--columns", "step=it,loss=ce"
    )["runs"]
    assert (run["rows"], run["steps"]) == (3, 3)
    (tmp_path / "b.log").write_text(MAIN)
    log = str(tmp_path / "b.log")
    said = refused(capsys, "import", "auto", log, *out, "--columns", "loss=ce")
    assert "no value ce for loss; its rows have lr, norm, s, trl" in said
    (tmp_path / "c.csv").write_text("step,loss\n1,5\n2,4\n")
    said = refused(capsys, "import", "auto", str(tmp_path / "c.csv"), *out, "--columns", "lr=rate")
    assert "no metric rate for lr; it has step, loss" in said


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "epoch,step,loss\n0,1,5\n0,2,4\n1,3,3\n2,4,2.5\n", "3 epochs"),
        ("a.csv", "epoch,step,loss\n1,1,5\n1,2,4\n1,3,3\n", None),
        (
            "trainer_state.json",
            {"log_history": [{"step": i, "loss": 5 - i, "epoch": 0.6 * i} for i in (1, 2, 3)]},
            "1.8 epochs",
        ),
        (
            "trainer_state.json",
            {"log_history": [{"step": i, "loss": 5 - i, "epoch": 0.3 * i} for i in (1, 2, 3)]},
            None,
        ),
    ],
)
def test_more_than_an_epoch_is_noted(tmp_path, capsys, name, text, says):
    (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
    given = ["-o", str(tmp_path / "o.csv"), *EIGHT]
    [run] = printed(capsys, "import", "auto", str(tmp_path / name), *given)["runs"]
    notes = [note for note in run["notes"] if "epochs over its data" in note]
    assert bool(notes) == bool(says) and all(note.startswith(says) for note in notes)


def test_a_batch_that_contradicts_the_log_is_refused(tmp_path, capsys):
    lines = [
        f"Training epoch 0, iteration {i}/9 | lr: 3e-05 | global_batch_size: 64 | "
        f"global_step: {i} | reduced_train_loss: {9 - i}\n"
        for i in range(4)
    ]
    (tmp_path / "a.log").write_text("".join(lines))
    given = ["-o", str(tmp_path / "o.csv"), "--seq-len", "64", "--batch", "128"]
    said = refused(capsys, "import", "auto", str(tmp_path / "a.log"), *given)
    assert "logs a batch of 64 at step 1, but --batch gives 128" in said


def test_the_last_loss_of_a_diverged_run_is_no_final_loss(folder, capsys):
    """As of runs of bss, of which only those that finished are read."""
    table = str(folder.parent / "runs.csv")
    printed(capsys, *import_of(folder))
    losses = final_losses(read_runs(table).assign(params=1000))
    assert dict(zip(losses["run"], losses["diverged"], strict=True)) == {
        "cut": 0,
        "good": 0,
        "worse": 1,
    }
    assert loss_points(losses)[1][0].startswith("1 rows without a finite loss")


def test_a_batch_that_contradicts_the_settings_beside_a_history_is_refused(tmp_path, capsys):
    rows = [{"_step": i, "trainer/global_step": i, "train_loss": 9 - i} for i in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.yaml").write_text("global_batch_size: {value: 64}\n")
    given = ["-o", str(tmp_path / "o.csv"), "--seq-len", "64"]
    [run] = printed(capsys, "import", "auto", str(tmp_path / "a.jsonl"), *given)["runs"]
    assert (run["batch"], run["batch_from"]) == ("64", "logged")
    said = refused(capsys, "import", "auto", str(tmp_path / "a.jsonl"), *given, "--batch", "128")
    assert "logs a batch of 64 at step 1, but --batch gives 128" in said


CURVE = [4.0, 3.5, 3.25, 3.125]
UNKNOWN = {
    "bracketed.log": "[{i}0] learning_rate 0.001, train_loss {loss}, train_perplexity 54.6\n",
    "finished.log": "I1127 10:22 train.py:5] Done with step {i}. Loss: {loss}, LR: 0.1\n",
    "fields.out": "tflops=189.0 step={i} loss={loss} tgs=148.3 lr=4e-07\n",
    "block.txt": "Update {i}\n  cross entropy: {loss}\n",
}
"""Lines of consoles that no format has."""


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_file_that_looks_like_a_log_is_not_left_out_in_silence(tmp_path, capsys, name):
    place = tmp_path / "logs"
    place.mkdir()
    (place / "good.log").write_text(MAIN)
    lines = [UNKNOWN[name].format(i=i, loss=loss) for i, loss in enumerate(CURVE)]
    (place / name).write_text("".join(lines))
    command = ["import", "auto", str(place), "-o", str(tmp_path / "runs.csv"), *EIGHT]
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert f"not read: {name}; --skip-unread accepts that" in shown and "1 run, 20 rows" in shown
    read = printed(capsys, *command, "--skip-unread")
    assert [os.path.basename(file) for file in read["unread"]] == [name]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        # Without the time, so that the test has one name in all workers.
        ("old.log.gz", gzip.compress(MAIN.encode(), mtime=0)),
        ("fetched.csv", LFS.encode()),
        ("history.jsonl.zst", b"\x28\xb5\x2f\xfd" + b"0" * 20),
    ],
)
def test_a_packed_log_is_not_left_out_in_silence(tmp_path, capsys, name, content):
    place = tmp_path / "logs"
    place.mkdir()
    (place / "good.log").write_text(MAIN)
    (place / name).write_bytes(content)
    assert main(["import", "auto", str(place), "-o", str(tmp_path / "runs.csv"), *EIGHT]) == 1
    assert name in capsys.readouterr().out


NO_LOGS = {
    "notes.txt": "the loss was 3.5 at step 10\nand 3.4 at step 20\n",
    "losses.csv": "batch,lr,final_loss\n8,0.1,3.5\n16,0.1,3.4\n32,0.1,3.6\n64,0.1,3.5\n",
    "sweep.csv": "batch,step,loss\n8,4000,3.5\n16,2000,3.4\n32,1000,3.6\n64,500,3.5\n",
    "config.json": '{"loss_scale": 1.0, "step": 10, "steps": 20}\n',
    "empty.log": "",
    "warnings.log": "UserWarning: step 10 is deprecated\n" * 20,
    "README.md": "".join(f"step {i} loss {9 - i / 10}\n" for i in range(20)),
    "accuracy.csv": "step,accuracy\n" + "".join(f"{i},{i / 30:.3f}\n" for i in range(1, 20)),
    "tokenize.log": "".join(f"{i} of 20 files, {20.5 - i} s left\n" for i in range(1, 20)),
    "wandb-summary.json": '{"loss": 3.0, "_step": 100, "val/loss": 3.1}\n',
}


def test_other_files_are_no_logs(tmp_path, capsys):
    place = tmp_path / "logs"
    place.mkdir()
    (place / "good.log").write_text(MAIN)
    for name, text in NO_LOGS.items():
        (place / name).write_text(text)
    read = printed(capsys, "import", "auto", str(place), "-o", str(tmp_path / "r.csv"), *EIGHT)
    assert read["unread"] == [] and reasons_of(read).keys() == NO_LOGS.keys()
    assert read["files"] == len(NO_LOGS) + 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("iteration", "xent/heldout", "opt/lr"), "no loss is known by its name; name a training"),
        (("engine/updates/done", "train_loss", "lr"), "no step is known by its name; name it with"),
    ],
)
def test_a_curve_under_other_names_refuses_the_directory(tmp_path, capsys, suffix, names, says):
    place = tmp_path / "logs"
    place.mkdir()
    (place / "good.log").write_text(MAIN)
    rows = [dict(zip(names, (10 * i, 4 - i / 10, 0.1), strict=True)) for i in range(6)]
    lines = [json.dumps(row) for row in rows]
    if suffix == "csv":
        lines = [",".join(names), *(",".join(map(str, row.values())) for row in rows)]
    (place / f"other.{suffix}").write_text("\n".join(lines) + "\n")
    said = refused(capsys, *import_of(place))
    assert f"other.{suffix}: {says}" in said


def test_rows_read_are_rows_kept_and_left_out(folder, capsys):
    """Of every file, by reason; equal numbers in Python and in the JSON."""
    resumed = MAIN + "".join(f"s:{i} trl:{8 - i / 10} lr:1e-3 norm:1\n" for i in range(15, 30))
    (folder / "resumed.log").write_text(resumed)
    read = printed(capsys, *import_of(folder))
    by_file = {os.path.basename(one["file"]): one for one in read["rows_by_file"]}
    assert by_file.keys() == {"cut.log", "good.log", "worse.log", "resumed.log"}
    for one in [read["rows"], *by_file.values()]:
        assert one["read"] == one["kept"] + sum(one["left_out"].values())
    assert by_file["good.log"]["left_out"] == {}
    assert by_file["cut.log"]["left_out"] == {"cut off": 1}
    assert by_file["worse.log"]["left_out"] == {"after the loss diverged": 5}
    assert by_file["resumed.log"]["left_out"] == {"logged again by a later attempt": 5}
    assert {name: one["read"] for name, one in by_file.items()} == {
        "cut.log": 20,
        "good.log": 20,
        "worse.log": 25,
        "resumed.log": 35,
    }


@pytest.mark.parametrize(
    ("last", "status", "rows"),
    [
        ("step:400/400 val_loss:3.45535 train_time:40.000s step_avg:100.00ms", "finished", 5),
        ("step:400/400 val_loss:3.45535 train_time:40.000s step_avg:100.00m", "cut", 4),
        ("step:400/400 val_loss:3.45535 train_time:40.000s step_avg:100", "cut", 4),
        ("step:400/400 val_loss:3.4553", "cut", 4),
    ],
)
def test_a_last_line_without_a_line_end_is_read_if_it_is_whole(
    tmp_path, capsys, last, status, rows
):
    lines = [
        f"step:{i}/400 val_loss:{5 - i / 400:.5f} train_time:{i / 10:.3f}s step_avg:100.00ms\n"
        for i in (1, 100, 200, 300)
    ]
    (tmp_path / "a.txt").write_text("".join([*lines, last]))
    log, out = str(tmp_path / "a.txt"), str(tmp_path / "o.csv")
    [run] = printed(capsys, "import", "auto", log, "-o", out, *EIGHT)["runs"]
    assert (run["status"], run["rows"]) == (status, rows)


@pytest.mark.parametrize(
    ("end", "status"), [("400,3.50", "finished"), ("400,3.5", "cut"), ("400,", "cut")]
)
def test_the_decimals_of_a_last_cell_show_that_it_is_whole(tmp_path, capsys, end, status):
    (tmp_path / "a.csv").write_text(f"step,loss\n100,4.25\n200,4.00\n300,3.75\n{end}")
    log, out = str(tmp_path / "a.csv"), str(tmp_path / "o.csv")
    [run] = printed(capsys, "import", "auto", log, "-o", out, *EIGHT)["runs"]
    assert run["status"] == status


UNREAD_TABLES = {
    "suffixes.csv": "tokens,loss\n" + "".join(f"{i}.5M,{5 - i / 9}\n" for i in range(9)),
    "epochs.csv": "epoch,loss\n" + "".join(f"{i},{5 - i / 9}\n" for i in range(9)),
    "newest.csv": "step,loss\n" + "".join(f"{90 - i},{5 + i / 9}\n" for i in range(9)),
    "ppl.csv": "step,ppl\n" + "".join(f"{i},{90 - i}\n" for i in range(9)),
    "list.json": json.dumps([{"step": i, "loss": 5 - i / 9} for i in range(9)]),
    "history.json": json.dumps(
        {"log": [{"step": i, "loss": 5 - i / 9} for i in range(9)]}, indent=1
    ),
}


@pytest.mark.parametrize("name", UNREAD_TABLES)
def test_a_table_of_a_run_that_is_not_read_is_never_skipped_in_silence(name, tmp_path, capsys):
    rows = "".join(f"{i},{5 - i / 9}\n" for i in range(9))
    (tmp_path / "good.csv").write_text("step,loss\n" + rows)
    (tmp_path / name).write_text(UNREAD_TABLES[name])
    arguments = ["import", "auto", str(tmp_path), "-o", str(tmp_path / "out.csv")]
    arguments += ["--seq-len", "64", "--batch", "8"]
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert (
        f"1 file looks like the log of a run and is not read: {name}" in printed.out + printed.err
    )
    assert main([*arguments, "--skip-unread"]) == 0
    capsys.readouterr()
    assert main(["import", "auto", str(tmp_path / name), *arguments[3:]]) == 2
    assert "table of a run" in capsys.readouterr().err


_CURVE = [(10 * i, round(9 / i**0.5, 3)) for i in range(1, 12)]
UNNAMED_CURVES = {
    "crossent.jsonl": "".join(json.dumps({"n": n, "value": x}) + "\n" for n, x in _CURVE),
    "nested.jsonl": "".join(json.dumps({"data": {"i": n, "l": x}}) + "\n" for n, x in _CURVE),
    "columns.csv": "k,v\n" + "".join(f"{n},{x}\n" for n, x in _CURVE),
    "header.csv": "".join(f"{n},{x}\n" for n, x in _CURVE),
    "pipes.csv": "step|loss\n" + "".join(f"{n}|{x}\n" for n, x in _CURVE),
    "spaces.txt": "step  loss\n" + "".join(f"{n:6d}  {x}\n" for n, x in _CURVE),
    "other.log": "".join(f"шаг {n}: потери {x}\n" for n, x in _CURVE),
    "lists.json": json.dumps({"step": [n for n, _ in _CURVE], "loss": [x for _, x in _CURVE]}),
    "page.json": json.dumps([[1e9 + n, n, x] for n, x in _CURVE]),
    "renamed.csv": "Wall time,Step,Value\n" + "".join(f"{1e9 + n},{n},{x}\n" for n, x in _CURVE),
    "run-a-tag-quality.csv": "Wall time,Step,Value\n"
    + "".join(f"{1e9 + n},{n},{x}\n" for n, x in _CURVE),
}
"""Curves that no name of a column or words of a line show."""


@pytest.mark.parametrize("name", UNNAMED_CURVES)
def test_numbers_like_those_of_a_run_are_never_skipped_in_silence(name, tmp_path, capsys):
    (tmp_path / "good.csv").write_text("step,loss\n" + "".join(f"{n},{x}\n" for n, x in _CURVE))
    (tmp_path / name).write_text(UNNAMED_CURVES[name], encoding="utf-8")
    command = ["import", "auto", str(tmp_path), "-o", str(tmp_path / "out.csv"), *EIGHT]
    assert main(command) == 1
    assert f"not read: {name}; --skip-unread accepts that" in capsys.readouterr().out


def test_unnamed_columns_are_read_by_name(tmp_path, capsys):
    (tmp_path / "crossent.jsonl").write_text(UNNAMED_CURVES["crossent.jsonl"])
    given = ["--columns", "step=n,loss=value", "-o", str(tmp_path / "out.csv"), *EIGHT]
    [run] = printed(capsys, "import", "auto", str(tmp_path / "crossent.jsonl"), *given)["runs"]
    assert (run["rows"], run["steps"]) == (11, 110)


def test_losses_of_two_files_of_a_directory_are_one_run(tmp_path, capsys):
    place = tmp_path / "b8"
    place.mkdir()
    for name, more in (("train.csv", 0), ("val.csv", 0.5)):
        lines = "".join(f"{n},{x + more}\n" for n, x in _CURVE)
        (place / name).write_text("step,loss\n" + lines)
    out = str(tmp_path / "out.csv")
    [run] = printed(capsys, "import", "auto", str(place), "-o", out, *EIGHT)["runs"]
    assert run["run"] == "b8"
    table = read_runs(out)
    assert (table["eval_loss"] - table["loss"]).tolist() == pytest.approx([0.5] * 11)


def test_a_parquet_table_is_read_as_its_csv_is(tmp_path, capsys):
    table = pd.DataFrame({"step": range(1, 10), "loss": [5 - i / 9 for i in range(9)]})
    table.to_parquet(tmp_path / "b8.parquet")
    table.to_csv(tmp_path / "b8.csv", index=False)
    found = []
    for suffix in ("parquet", "csv"):
        out = tmp_path / f"{suffix}.out.csv"
        options = ["-o", str(out), "--seq-len", "64", "--batch", "8"]
        assert main(["import", "auto", str(tmp_path / f"b8.{suffix}"), *options]) == 0
        found.append(out.read_text())
    assert found[0] == found[1]


def test_steps_that_begin_anew_at_each_epoch_are_refused(tmp_path, capsys):
    lines = [f"{e},{i},{5 - e - i / 9}\n" for e in range(3) for i in range(1, 9)]
    (tmp_path / "a.csv").write_text("epoch,step,loss\n" + "".join(lines))
    options = ["-o", str(tmp_path / "out.csv"), "--seq-len", "64", "--batch", "8"]
    assert main(["import", "auto", str(tmp_path / "a.csv"), *options]) == 2
    assert "step begins anew at each epoch" in capsys.readouterr().err
    twice = [f"0,{i},{5 - i / 9 + k}\n" for k in (0, 0.1) for i in range(1, 9)]
    (tmp_path / "a.csv").write_text("epoch,step,loss\n" + "".join(twice))
    assert main(["import", "auto", str(tmp_path / "a.csv"), *options]) == 0
    assert capsys.readouterr().out.startswith("2 runs")
