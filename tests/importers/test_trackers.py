"""Trackers as strangers use them: whose metrics these are, what their steps count, whose run."""

import json
from collections.abc import Mapping, Sequence

import pandas as pd
import pytest

from bss.errors import InputError
from bss.importers import ANY, IMPORTERS, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from tests.cli.called import refused
from tests.importers.imported import assert_same, expected, the_run
from tests.importers.test_bad_input import EIGHT as GIVEN
from tests.importers.writers import (
    FORMATS,
    SEQ_LEN,
    Event,
    Summary,
    events,
    rows_of_run,
)

EIGHT = LogOptions(Batches.parse(["8"]), SEQ_LEN)
FILE = "events.out.tfevents.1700000000.host.1.0"


def lines(path, rows: Sequence[Mapping]):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scalars(path, points: Sequence[tuple[int, str, float]]):
    from tensorboard.summary.writer.record_writer import RecordWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as opened:
        writer = RecordWriter(opened)
        for step, tag, value in points:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.write(Event(step=step, summary=summary).SerializeToString())
    return path


def steps_of(table: pd.DataFrame, loss: str) -> dict[int, float]:
    there = table.dropna(subset=[loss])
    return dict(zip(there["step"], there[loss].round(4), strict=True))


TRACKED = {
    # the rows of a history, the steps of training losses, and of held-out ones
    "nanogpt": (
        [{"iter": 100 * i, "train/loss": 5 - i, "val/loss": 6 - i, "lr": 1e-3} for i in range(3)],
        {0: 5, 100: 4, 200: 3},
        {0: 6, 100: 5, 200: 4},
    ),
    "nanochat": (
        [{"step": 0, "val/bpb": 3.0}]
        + [{"step": 100 * i, "train/loss": 5 - i, "train/lrm": 1.0} for i in range(3)],
        {1: 5, 101: 4, 201: 3},
        {},
    ),
    "litgpt": (
        [{"step": 10 * i, "iter": 40 * i, "loss": 5 - i, "iter_time": 1.0} for i in (1, 2, 3)]
        + [{"val_loss": 3.5}],
        {10: 4, 20: 3, 30: 2},
        {},
    ),
    "lightning": (
        [
            {"trainer/global_step": 49, "train_loss": 4.0},
            {"trainer/global_step": 49, "val_loss": 5},
            {"trainer/global_step": 99, "train_loss": 3.0, "train_loss_epoch": 3.4},
        ],
        {50: 4, 100: 3},
        {50: 5},
    ),
    "huggingface": (
        [{"train/global_step": 10 * i, "train/loss": 5 - i} for i in (1, 2)]
        + [{"train/global_step": 20, "eval/loss": 3.5}],
        {10: 4, 20: 3},
        {20: 3.5},
    ),
}
"""Trainers whose W&B step counts calls of log."""


@pytest.mark.parametrize("name", TRACKED)
def test_wandb_steps_that_count_logs_are_not_read(tmp_path, name):
    rows, losses, held_out = TRACKED[name]
    path = lines(tmp_path / "run.jsonl", [{"_step": i, **row} for i, row in enumerate(rows)])
    table, report = the_run([path], EIGHT, "auto")
    assert steps_of(table, "loss") == losses
    assert steps_of(table.reindex(columns=["step", "eval_loss"]), "eval_loss") == held_out
    told = " ".join(report.notes)
    assert ("1 values of eval_loss have no step and are left out" in told) == (name == "litgpt")


def test_wandb_steps_are_refused_where_they_count_logs(tmp_path):
    row = {"train/loss": 4.0, "train/learning_rate": 1e-3}
    path = lines(tmp_path / "run.jsonl", [{"_step": i, **row} for i in range(3)])
    with pytest.raises(InputError, match="counts the logs of huggingface; export its train/global"):
        the_run([path], EIGHT, "wandb")
    named = LogOptions(EIGHT.batches, SEQ_LEN, columns={"step": "_step"})
    assert the_run([path], named, "wandb")[1].steps == 2
    chart = tmp_path / "chart.csv"
    chart.write_text("Step,r - train/loss\n0,4.5\n1,4.4\n")
    with pytest.raises(InputError, match="csv, r: W&B's step counts the logs"):
        the_run([chart], EIGHT, "huggingface")
    _, report = the_run([chart], EIGHT, "auto")
    assert any("count logs if the trainer gives it no steps" in note for note in report.notes)


def test_steps_of_event_files_are_as_each_trainer_means_them(tmp_path):
    logged = {
        "neox": [(9, "train/lm_loss", 4.0), (9, "validation/lm_loss", 5.0)],
        "maxtext": [(8, "learning/loss", 4.0), (8, "eval/avg_loss", 5.0)],
        "lightning": [(8, "train_loss", 4.0), (8, "val_loss", 5.0), (8, "train_loss_epoch", 9.0)],
        "composer": [(8, "loss/train/total", 4.0), (9, "metrics/eval/LanguageCrossEntropy", 5.0)],
        "litgpt": [(71, "loss", 4.0), (71, "val_loss", 5.0), (71, "step", 9), (71, "iter_time", 1)],
    }
    for name, points in logged.items():
        path = scalars(tmp_path / name / FILE, points)
        table, _ = the_run([path], EIGHT, "auto")
        assert steps_of(table, "loss") == {9: 4} and steps_of(table, "eval_loss") == {9: 5}, name


def test_runs_of_one_history_are_told_apart(tmp_path):
    rows = [
        {"run_id": run, "_step": i, "train/loss": loss - i / 10}
        for run, loss in (("a", 4.0), ("b", 5.0))
        for i in range(1, 20)
    ]
    lines(tmp_path / "all.jsonl", rows)
    pd.DataFrame(rows).to_csv(tmp_path / "all.csv")
    pd.DataFrame(rows).rename(columns={"run_id": "who"}).to_parquet(tmp_path / "all.parquet")
    for name, columns in (("all.jsonl", {}), ("all.csv", {}), ("all.parquet", {"run": "who"})):
        options = LogOptions(EIGHT.batches, SEQ_LEN, columns=columns)
        logs, _ = read_logs([tmp_path / name], IMPORTERS["wandb"], options)
        tables = [table for table, _ in import_runs(list(logs), options)]
        assert [table["run"].iloc[0] for table in tables] == ["a", "b"]
        assert [steps_of(table, "loss")[19] for table in tables] == [2.1, 3.1]
    (tmp_path / "all.csv").write_text("_step,train/loss,run_id\n1,4,a\n2,3,\n")
    with pytest.raises(InputError, match="column run_id names no run in some rows"):
        the_run([tmp_path / "all.csv"], EIGHT, "wandb")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "Step, - train/loss\n1,4\n", "no column is called RUN - METRIC"),
        ("a.csv", "Step,r - train/loss,r - train/loss\n1,4,5\n", "occurs twice; rename one"),
        ("a.json", '[{"_step": 1, "train/loss": 4}]', "is a JSON list; write one object per line"),
        ("run-1.wandb", ":W&B", "is W&B's own record; save the run's scan_history()"),
        ("trainer_state.json", '{"log_history": []}', "no loss is known"),
        (FILE, "", "is empty; copy it again"),
    ],
)
def test_what_a_tracker_leaves_is_refused(capsys, tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    out = ["-o", str(tmp_path / "runs.csv")]
    assert says in refused(capsys, "import", "auto", str(tmp_path / name), *GIVEN, *out)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (["--run-regex", "(?P<step>h)"], "--run-regex: the log has step; rename the group"),
        (["--columns", "steps=iter"], "--columns: steps is not read; known are run, step,"),
        (["-o", "history.csv"], "history.csv is one of the logs; write the table elsewhere"),
        (["-o", "made.csv"], "made.csv: "),
    ],
)
def test_options_that_would_spoil_the_table(capsys, tmp_path, monkeypatch, option, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made.csv").mkdir()
    (tmp_path / "history.csv").write_text("_step,train/loss\n1,4\n")
    out = [] if "-o" in option else ["-o", "runs.csv"]
    assert says in refused(capsys, "import", "auto", "history.csv", *GIVEN, *option, *out)


def test_metrics_that_begin_late_and_marks_of_windows(tmp_path):
    rows = [{"_step": i, "train/loss": 4.0 - i / 1000, "x": f"{i}"} for i in range(300)]
    path = lines(tmp_path / "run.jsonl", [*rows, {"_step": 300, "eval/loss": 3.0}])
    assert steps_of(the_run([path], EIGHT, "wandb")[0], "eval_loss") == {300: 3}
    path = tmp_path / "chart.csv"
    path.write_bytes('\ufeff"Step","a, b - c - train/loss"\r\n"1","4.0"\r\n'.encode())
    table, _ = the_run([path], EIGHT, "wandb")
    assert list(table["run"]) == ["a, b - c"] and list(table["loss"]) == [4.0]


def test_numbers_as_text_one_of_several_sets_and_no_batch_that_is_true(tmp_path):
    rows = [{"_step": 1, "train/loss": "4.5"}, {"_step": 2, "train/loss": 4, "eval/c4_loss": 5}]
    path = lines(tmp_path / "run.jsonl", [{**row, "train/global_step": 8} for row in rows[:1]])
    table, _ = the_run([path], EIGHT, "wandb")
    assert steps_of(table, "loss") == {8: 4.5}
    path = lines(tmp_path / "run.jsonl", [{**row, "train/global_step": 8} for row in rows[1:]])
    assert steps_of(the_run([path], EIGHT, "wandb")[0], "eval_loss") == {8: 5}
    (tmp_path / "run.yaml").write_text("trainer: {value: {train_batch_size: true}}\n")
    with pytest.raises(InputError, match="run run does not give its batch"):
        the_run([path], LogOptions(seq_len=SEQ_LEN), "levanter")


def test_parts_of_an_exported_history_are_one_run(tmp_path):
    rows = [{"_step": i, "train/loss": 4.0 - i / 100} for i in range(8)]
    (tmp_path / "run-a-history").mkdir()
    for part in (0, 1):
        frame = pd.DataFrame(rows[4 * part : 4 * part + 4])
        frame.to_parquet(tmp_path / "run-a-history" / f"000{part}.parquet")
    table, report = the_run([tmp_path], EIGHT, "wandb")
    assert list(table["step"]) == list(range(8)) and report.run == "run-a-history"


def test_event_files_are_read_to_a_damaged_record(tmp_path):
    path = events(tmp_path, rows_of_run(0))
    whole, _ = the_run([path], LogOptions(seq_len=SEQ_LEN), "tensorboard")
    data, at = path.read_bytes(), path.stat().st_size // 2
    flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    for damaged, says in ((flipped, "is damaged"), (data[:-3], "cut off in record")):
        path.write_bytes(damaged)
        table, report = the_run([path], LogOptions(seq_len=SEQ_LEN), "tensorboard")
        assert report.status == "cut" and says in report.notes[0]
        assert list(table["step"]) == list(whole["step"])[: len(table)] and len(table) > 5


def test_a_loss_measured_again_at_the_end_restarts_nothing(tmp_path):
    points = [(i, tag, 4.0) for i in (10, 15, 20) for tag in ("train/loss", "eval/loss")]
    scalars(tmp_path / "r" / FILE, points)
    scalars(tmp_path / "r" / FILE.replace("17", "18"), [(20, "eval/loss", 3.0)])
    table, report = the_run([tmp_path], EIGHT, "huggingface")
    assert steps_of(table, "loss") == {10: 4, 15: 4, 20: 4}
    assert steps_of(table, "eval_loss") == {10: 4, 15: 4, 20: 3}
    assert (report.restarts, report.superseded) == (0, 1)


def test_runs_are_named_by_the_directory_that_says_something(tmp_path):
    rows = rows_of_run(0)
    for run in ("a", "b"):
        path = events(tmp_path, rows)
        folder = tmp_path / run / "logs" / "tensorboard"
        folder.mkdir(parents=True)
        path.rename(folder / path.name)
    wanted = expected(rows, FORMATS["tensorboard"])
    table, _ = the_run([tmp_path / "a"], LogOptions(seq_len=SEQ_LEN), "tensorboard")
    assert_same(table, wanted.assign(run="a"))


def test_held_out_sets_of_a_trainer_state(tmp_path):
    path = tmp_path / "trainer_state.json"
    logs = [{"step": 1, "loss": 4.0}, {"step": 1, "eval_c4_loss": 5.0}]
    path.write_text(json.dumps({"log_history": logs}))
    assert steps_of(the_run([path], EIGHT, "auto")[0], "eval_loss") == {1: 5}
    path.write_text(json.dumps({"log_history": [*logs, {"step": 1, "eval_pile_loss": 6.0}]}))
    _, report = the_run([path], EIGHT, "auto")
    assert "eval_loss left out: eval_c4_loss, eval_pile_loss" in report.notes[0]
    named = LogOptions(EIGHT.batches, SEQ_LEN, columns={"eval_loss": "eval_pile_loss"})
    assert steps_of(the_run([path], named, "auto")[0], "eval_loss") == {1: 6}


LENGTH = LogOptions(seq_len=SEQ_LEN)


def imported(file, options=LENGTH):
    """The run table of a file, and all that is said about it."""
    logs, _ = read_logs([file], ANY, options)
    found = [*import_runs(logs, options)]
    said = " ".join(str((one.notes, one.unread, one.warnings)) for _, one in found)
    return pd.concat(table for table, _ in found), said


def neptune(path, settings: Mapping[str, float], run="RUN-1"):
    """A file of neptune-exporter: settings without a step, then series."""
    base = {"project_id": "w/p", "run_id": run}
    rows = [
        base | {"attribute_path": name, "attribute_type": "int", "int_value": value}
        for name, value in settings.items()
    ]
    rows += [
        base | {"attribute_path": "train/loss", "step": 10.0 * i, "float_value": 6 / i**0.3}
        for i in range(1, 31)
    ]
    pd.DataFrame(rows).to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("settings", "batch", "said"),
    [
        ({"config/batch_size": 32}, 32, "if that is per device, give --batch"),
        ({"config/batch_size": 8, "config/global_batch_size": 64}, 64, ""),
        ({"parameters/config/global_batch_size": 64, "config/seq_len": 128}, 64, ""),
        ({"config/batch_size": 8, "config/gradient_accumulation_steps": 4}, 8, "accumulation"),
    ],
)
def test_a_batch_among_settings_without_a_step_is_read(tmp_path, settings, batch, said):
    file = neptune(tmp_path / "part_0.parquet", settings)
    length = None if "config/seq_len" in settings else SEQ_LEN
    table, told = imported(file, LogOptions(seq_len=length))
    assert set(table["batch"]) == {batch}
    assert table["tokens"].iloc[-1] == 300 * batch * (length or 128)
    assert said in told
    given = LogOptions(Batches.parse(["16"]), length)
    if "config/global_batch_size" not in str(settings):
        assert set(imported(file, given)[0]["batch"]) == {16}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_metrics_as_json_text_are_columns(tmp_path, suffix):
    rows = [
        {"id": i, "timestamp": "t", "run_name": run, "step": 10 * i,
         "metrics": json.dumps({"train/loss": 6 / i**0.3 + k, "val/loss": 7 / i**0.3 + k})}
        for k, run in enumerate(("b32", "b64"))
        for i in range(1, 31)
    ]  # fmt: skip
    file = tmp_path / f"trackio.{suffix}"
    frame = pd.DataFrame(rows)
    if suffix == "parquet":
        frame.to_parquet(file)
    elif suffix == "csv":
        frame.to_csv(file, index=False)
    else:
        lines(file, rows)
    named = LogOptions(seq_len=SEQ_LEN, run_regex=r"b(?P<batch>\d+)")
    table, told = imported(file, named)
    assert table.groupby("run")["batch"].first().to_dict() == {"b32": 32, "b64": 64}
    assert table["loss"].notna().sum() == table["eval_loss"].notna().sum() == 60
    assert "steps are trackio's" in told
    frame.loc[3, "metrics"] = '{"train/loss": '
    if suffix == "parquet":
        frame.to_parquet(file)
        with pytest.raises(InputError, match=r"row 4: metrics is .*; expected JSON"):
            imported(file)


def test_a_chart_that_is_cut_in_its_header_is_refused(tmp_path):
    (tmp_path / "chart.csv").write_text('"Step","run-7 - ')
    options = LogOptions(Batches.parse(["8"]), 64)
    with pytest.raises(InputError, match="the chart has no column; export the chart again"):
        read_logs([tmp_path / "chart.csv"], ANY, options)
