"""Lines described by regular expressions, losses in doubtful units, and micro-batches."""

import json
import math
import signal

import pytest

from bss.errors import InputError
from bss.importers import LogOptions, read_logs
from bss.importers.formats import own_lines
from bss.tables import read_runs
from tests.cli.called import printed, refused

LOG = "starting\n" + "".join(f"step {i} of 40 | ce {6 - i / 20}\n" for i in (10, 20, 30))
TRAIN = r"step (?P<step>\d+) of \d+ \| ce (?P<loss>\S+)"


def lines_of(tmp_path, *options: str, text: str = LOG) -> list[str]:
    (tmp_path / "run.log").write_text(text)
    out = ["-o", str(tmp_path / "o.csv"), "--batch", "8", "--seq-len", "64"]
    return ["import", "lines", str(tmp_path / "run.log"), *out, *options]


def test_lines_of_any_trainer(tmp_path, capsys):
    text = LOG + "  held out: 4.75 bits\n"
    given = ["--train-line", TRAIN, "--eval-line", r"held out: (?P<eval_loss_bits>\S+) bits"]
    [run] = printed(capsys, *lines_of(tmp_path, *given, text=text))["runs"]
    assert (run["rows"], run["steps"], run["tokens"], run["missing"]) == (3, 30, 15360, ["lr"])
    table = read_runs(tmp_path / "o.csv")
    assert table["eval_loss"].iloc[-1] == pytest.approx(4.75 * math.log(2))


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ([], ["--train-line: the format lines needs one"]),
        (["--train-line", "("], ["--train-line '('"]),
        (["--train-line", r"ce (\S+)"], ["no group loss"]),
        (["--train-line", r"ce (?P<loss>\S+)"], ["no group step"]),
        (["--train-line", TRAIN.replace("P<step>", "P<stp>")], ["group stp is unknown"]),
        (
            ["--train-line", TRAIN.replace("P<step>", "P<eval_loss_name>")],
            ["group eval_loss_name is unknown"],
        ),
        (["--eval-line", TRAIN], ["--eval-line", "no group eval_loss"]),
        (
            ["--train-line", TRAIN.replace("ce", "xent")],
            ["matches no line of", "the nearest is line 2: 'step 10 of 40 | ce 5.5'"],
        ),
        (
            ["--train-line", TRAIN, "--eval-line", r"eval (?P<eval_loss>\S+)"],
            ["--eval-line", "matches no line of"],
        ),
    ],
)
def test_expressions_that_cannot_be_used(tmp_path, capsys, options, parts):
    error = refused(capsys, *lines_of(tmp_path, *options))
    assert all(part in error for part in parts), error


def test_expressions_are_for_the_format_lines(tmp_path, capsys):
    command = lines_of(tmp_path, "--train-line", TRAIN)
    command[1] = "auto"
    assert "--train-line: is for the format lines" in refused(capsys, *command)


def json_lines(tmp_path, name: str, rows) -> str:
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / name)


def test_losses_above_a_uniform_guess_are_warned_of(tmp_path, capsys):
    out = ["-o", str(tmp_path / "o.csv"), "--batch", "8", "--seq-len", "64"]
    for factor, warned in ((1, 0), (8, 1)):
        rows = [{"step": i, "loss": factor * (5 - i / 10)} for i in range(1, 9)]
        path = json_lines(tmp_path, f"x{factor}.jsonl", rows)
        [run] = printed(capsys, "import", "auto", path, *out)["runs"]
        assert len(run["warnings"]) == warned


def test_losses_above_the_logs_own_vocabulary_are_warned_of(tmp_path, capsys):
    text = "seq_len:64 train_batch_tokens:512 vocab_size:{}\n" + "".join(
        f"step:{i}/9 train_loss:{6 - i / 10:.4f} train_time:9ms\n" for i in range(1, 5)
    )
    for size, warned in ((1024, 0), (256, 1)):
        (tmp_path / "run.log").write_text(text.format(size))
        command = ["import", "auto", str(tmp_path / "run.log"), "-o", str(tmp_path / "o.csv")]
        [run] = printed(capsys, *command)["runs"]
        assert len(run["warnings"]) == warned


@pytest.mark.parametrize(("summed", "warned"), [(False, 0), (True, 1)])
def test_losses_that_grow_with_the_batch_are_warned_of(tmp_path, capsys, summed, warned):
    paths = []
    for batch in (1, 2, 4):
        factor = batch if summed else 1
        rows = [{"step": i, "batch": batch, "loss": factor * (3 - i / 10)} for i in (1, 2, 3)]
        paths.append(json_lines(tmp_path, f"b{batch}.jsonl", rows))
    out = ["-o", str(tmp_path / "o.csv"), "--seq-len", "64"]
    assert len(printed(capsys, "import", "auto", *paths, *out)["warnings"]) == warned


def test_a_batch_that_contradicts_the_tokens_of_the_log_is_refused(tmp_path, capsys):
    rows = [{"step": i, "tokens": i * 64 * 64, "loss": 3 - i / 10} for i in range(1, 9)]
    command = ["import", "auto", json_lines(tmp_path, "a.jsonl", rows), "-o"]
    command += [str(tmp_path / "o.csv"), "--seq-len", "64", "--batch"]
    for batch in ("8", "48"):  # a micro-batch, and another
        assert "steps and batches make" in refused(capsys, *command, batch)
    [run] = printed(capsys, *command[:-1])["runs"]
    assert (run["batch"], run["batch_from"]) == ("64", "tokens per step")


def test_an_accuracy_is_no_loss(tmp_path, capsys):
    values = enumerate((0.61, 0.68, 0.72), 1)
    rows = [
        {"key": "eval_accuracy", "value": v, "metadata": {"samples_count": 8 * i}}
        for i, v in values
    ]
    text = "".join(f":::MLLOG {json.dumps(row)}\n" for row in rows)
    (tmp_path / "result.txt").write_text(text)
    command = ["import", "mllog", str(tmp_path / "result.txt"), "-o", str(tmp_path / "o.csv")]
    assert "is an accuracy" in refused(capsys, *command)


def test_settings_of_mllog_become_columns(tmp_path, capsys):
    settings = {"global_batch_size": 8, "max_sequence_length": 64, "seed": 11}
    settings |= {"opt_base_learning_rate": 8e-4}
    events = [{"key": key, "value": value, "metadata": {}} for key, value in settings.items()]
    events += [
        {"key": "eval_accuracy", "value": 5.0 - i, "metadata": {"samples_count": 80 * i}}
        for i in (1, 2, 3)
    ]
    (tmp_path / "result.txt").write_text("".join(f":::MLLOG {json.dumps(e)}\n" for e in events))
    printed(capsys, "import", "auto", str(tmp_path / "result.txt"), "-o", str(tmp_path / "o.csv"))
    table = read_runs(tmp_path / "o.csv")
    assert list(table["step"]) == [10, 20, 30] and list(table["eval_loss"]) == [4.0, 3.0, 2.0]
    assert set(table["seed"]) == {11} and set(table["peak_lr"]) == {8e-4}


def test_runs_of_a_long_table(tmp_path, capsys):
    rows = [
        f"{run},{metric},{value},{step}"
        for run in "ab"
        for step in (10, 20)
        for metric, value in (("train_loss", 5 - step / 10), ("lr", 3e-4))
    ]
    (tmp_path / "metrics.csv").write_text("\n".join(["run_uuid,key,value,step", *rows]) + "\n")
    out = ["-o", str(tmp_path / "o.csv"), "--batch", "8", "--seq-len", "64"]
    runs = printed(capsys, "import", "auto", str(tmp_path / "metrics.csv"), *out)["runs"]
    assert [(run["run"], run["rows"], run["missing"]) for run in runs] == [
        ("a", 2, ["eval_loss"]),
        ("b", 2, ["eval_loss"]),
    ]
    assert set(read_runs(tmp_path / "o.csv")["lr"]) == {3e-4}


def test_repetitions_of_repetitions_end_in_a_line(tmp_path, monkeypatch):
    log = tmp_path / "a.log"
    log.write_text("1 loss 2.5\n" + "2 " + "word" * 20 + " loss?\n")
    monkeypatch.setattr("bss.importers.formats.PATIENCE", 0.2)
    lines = own_lines(r"(?P<step>\d+) (?:(?:\w+)+ ?)*loss (?P<loss>[\d.]+)$", "")
    with pytest.raises(InputError, match=r"takes too long in line 2 of .*a\.log, as"):
        read_logs([log], lines, LogOptions())
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
