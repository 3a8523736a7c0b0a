import os
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bss.errors import InputError
from bss.importers.imported import import_logs
from bss.points.curve import loss_column
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.tables import (
    POINTS,
    Reading,
    check_runs,
    read_points,
    read_runs,
    write_table,
)
from bss.tables.storage import read_table

RUN = "run,batch,seq_len,step,loss\n"


def write(folder, text, name="runs.csv"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["NA", "nan", "null", "None", "#1", "007", "1e5"])
def test_any_name_of_a_run_or_a_model_comes_back(tmp_path, name):
    rows = [(run, model, i) for run, model in ((name, "m"), ("b", name)) for i in (1, 2, 3)]
    columns = {"batch": 8, "seq_len": 64, "loss": [3.0, 2.5, 2.0] * 2, "note": "None"}
    table = pd.DataFrame(rows, columns=["run", "model", "step"]).assign(**columns)
    write_table(table, tmp_path / "runs.csv")
    runs = read_runs(tmp_path / "runs.csv")
    assert runs["run"].tolist() == [name] * 3 + ["b"] * 3
    assert runs["model"].tolist() == ["m"] * 3 + [name] * 3
    read = import_logs(tmp_path / "runs.csv").runs
    assert read[["run", "model"]].to_dict("list") == runs[["run", "model"]].to_dict("list")


def test_steps_are_integrated_over_the_batch_they_used(tmp_path):
    text = "# a stranger's curve\n" + RUN + "a,8,128,10,3.0\nb,4,128,1,3.5\na,8,128,20,2.5\n"
    runs = read_runs(write(tmp_path, text + "\na,16,128,25,2.2\n# end\na,16,128,35,2.0\n"))
    assert list(runs["run"]) == ["a", "b", "a", "a", "a"]
    assert list(runs["tokens"]) == [10_240, 512, 20_480, 30_720, 51_200]
    assert runs["tokens"].dtype == np.int64


def test_batch_tokens_and_tokens_give_the_rest(tmp_path):
    text = (
        "run,batch,batch_tokens,tokens,loss\n1,8,1024,1024,3\n1,8,1024,3072,2\n1,16,2048,7168,1\n"
    )
    runs = read_runs(write(tmp_path, text))
    assert list(runs["seq_len"]) == [128] * 3
    assert list(runs["step"]) == [1, 3, 5]
    assert list(runs["run"]) == ["1"] * 3


def test_step_zero_and_rows_without_training_loss_are_kept(tmp_path):
    text = "run,batch,seq_len,step,loss,eval_loss,note\na,8,1,0,,4.0,x\na,8,1,5,3.0,,y\n"
    runs = read_runs(write(tmp_path, text))
    assert list(runs["tokens"]) == [0, 40] and list(runs["note"]) == ["x", "y"]
    assert loss_column(runs) == "eval_loss"
    only = check_runs(runs.drop(columns="loss").head(1))
    assert list(only["loss"]) == [4.0]
    assert loss_column(runs.drop(columns="eval_loss")) == "loss"


def curve(plan, every):
    steps = sorted({*range(every, plan.steps + 1, every), *(s.start_step for s in plan.segments)})
    steps = [step for step in steps if step]
    return pd.DataFrame(
        {
            "run": "ours",
            "step": steps,
            "tokens": [plan.tokens_at(step) for step in steps],
            "batch": [plan.at(step - 1).batch for step in steps],
            "seq_len": plan.seq_len,
            "loss": 1.0,
        }
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 7))
def test_integration_undoes_a_plan(every, batches, seq_len):
    schedule = BatchSchedule.stages(batches, 2000)
    ours = curve(resolve(schedule, 2000, seq_len), every)
    if ours.empty:
        return
    for given_columns in (["tokens"], ["step"], []):
        back = check_runs(ours.drop(columns=given_columns))
        assert list(back["tokens"]) == list(ours["tokens"])
        assert list(back["step"]) == list(ours["step"])


def test_a_branch_and_a_switch_between_rows_are_no_contradiction():
    plan = resolve(BatchSchedule.late_switch(4, 16, 1000), 4000, 10)
    ours = curve(plan, 7)
    branch = ours.assign(tokens=ours["tokens"] + 5000)
    assert list(check_runs(branch)["tokens"]) == list(branch["tokens"])
    sparse = ours.loc[ours["step"] % 14 == 0].copy()
    assert list(check_runs(sparse)["tokens"]) == list(sparse["tokens"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no rows"),
        (RUN, "has no rows"),
        ("run,batch,seq_len,step\na,8,128,1\n", "no column loss or eval_loss; it has run, batch"),
        ("batch,seq_len,loss\n8,128,1\n", "no column run, step or tokens"),
        ("run,batch,step,loss\na,8,1,1\n", "no column seq_len or batch_tokens"),
        (RUN + "a,8,128,1,3\na,8,128,2,nan\n", "line 3: loss is missing or NaN; drop the rows"),
        ("# c\n" + RUN + "# c\na,8,128,1,inf\n", "line 4: loss is inf"),
        (RUN + "a,8,128,1,-1\n", "line 2: loss is -1"),
        (RUN + "a,8,128,1,0\n", "line 2: loss is 0"),
        (RUN + "a,8,128,1,high\n", "line 2: loss is high"),
        (RUN + "a,0,128,1,3\n", "line 2: batch is 0"),
        (RUN + "a,-8,128,1,3\n", "line 2: batch is -8"),
        (RUN + "a,8.5,128,1,3\n", "line 2: batch is 8.5"),
        (RUN + "a,,128,1,3\n", "line 2: batch is nan"),
        (RUN + "a,8,128,-1,3\n", "line 2: step is -1"),
        (RUN + "a,8,128,1e30,3\n", "line 2: step is"),
        (RUN + ",8,128,1,3\n", "line 2: run is missing"),
        (RUN + "a,8,128,1,3\nb,8,128,1,3\na,8,128,1,2\n", "line 4: step 1 of run a .* line 2"),
        (RUN + "a,8,128,5,3\na,8,128,4,2\n", "line 3: step 4 of run a follows 5"),
        ("# c\n" + RUN + "a,8,128,5,3,7\n", "line 3: 6 values for 5 columns"),
        (RUN + "a,8,128,5\n", "line 2: 4 values for 5 columns"),
        ("run,batch,seq_len,tokens,loss\na,8,8,64,3\na,8,8,70,2\n", "line 3: step 1 of run a"),
        ("run,batch,seq_len,batch_tokens,step,loss\na,8,8,65,1,3\n", "line 2: batch_tokens 65"),
        ("run,batch,batch_tokens,step,loss\na,8,65,1,3\n", "line 2: .*multiple of batch"),
        (
            "run,batch,seq_len,step,tokens,loss\na,8,8,1,64,3\na,8,8,2,128,3\na,8,8,3,300,2\n",
            "line 4: 236 tokens since line 2, .* make 128",
        ),
        ("run,batch,seq_len,step,tokens,loss\na,8,8,10,64,3\n", "line 2: tokens 64 are fewer"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        read_runs(write(tmp_path, text))
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    for name in ("none.csv", "bytes.csv", "broken.parquet"):
        with pytest.raises(InputError, match=name):
            read_runs(tmp_path / name)


def test_tables_round_trip(tmp_path):
    runs = check_runs(curve(resolve(BatchSchedule.constant(4), 4000, 10), 7))
    for name in ("runs.csv", "runs.parquet"):
        write_table(runs, tmp_path / name)
        pd.testing.assert_frame_equal(read_runs(tmp_path / name), runs, check_dtype=False)
    assert sorted(os.listdir(tmp_path)) == ["runs.csv", "runs.parquet"]


def test_a_failed_write_leaves_the_old_table(tmp_path, monkeypatch):
    path = write(tmp_path, "old")

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(OSError, match="no space"):
        write_table(pd.DataFrame({"a": [1]}), path)
    assert os.listdir(tmp_path) == ["runs.csv"] and path.read_text() == "old"
    with pytest.raises(InputError, match="unknown extension"):
        write_table(pd.DataFrame(), tmp_path / "runs.xlsx")


PUBLISHED = """# Steps to reach a fixed loss
# second comment
model,params_m,tokens,target_loss,batch,steps
85M,85,1741000000,3.42,64,46000
85M,85,1741000000,3.42,128,23000
1.2B,1208,25600000000,2.9,64,400000
"""


def test_the_published_file_reads_as_it_is(tmp_path):
    points = read_points(write(tmp_path, PUBLISHED), Reading(seq_len=512), weights="averaged")
    assert tuple(points.columns) == POINTS
    assert list(points["params"]) == [85e6, 85e6, 1208e6]
    assert list(points["budget_tokens"]) == [1.741e9, 1.741e9, 25.6e9]
    assert list(points["tokens_to_target"]) == [46000 * 64 * 512] * 2 + [400000 * 64 * 512]
    assert list(points["reached"]) == [True] * 3
    assert list(points["weights"]) == ["averaged"] * 3
    unknown = read_points(write(tmp_path, PUBLISHED))
    assert list(unknown["tokens_to_target"].isna()) == [True] * 3
    assert list(unknown["steps"]) == [46000, 23000, 400000]


def test_points_round_trip_with_unreached_targets(tmp_path):
    points = pd.DataFrame(
        {
            "target_loss": [2.0, 2.0],
            "batch": [4, 8],
            "tokens_to_target": [1000.0, 4000.0],
            "reached": [True, False],
            "seq_len": [10, 10],
        }
    )
    write_table(points, tmp_path / "points.csv")
    back = read_points(tmp_path / "points.csv")
    assert list(back["steps"]) == [25.0, 50.0] and list(back["reached"]) == [True, False]
    write_table(back, tmp_path / "points.parquet")
    pd.testing.assert_frame_equal(read_points(tmp_path / "points.parquet"), back)


POINT = "model,target_loss,batch,seq_len,steps,tokens_to_target,lr_phase\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch,steps\n8,10\n", "no column target_loss"),
        ("target_loss,batch\n2,8\n", "no column steps or tokens_to_target"),
        ("target_loss,batch,tokens_to_target\n2,8,100\n", "line 2: steps cannot be derived"),
        (POINT + "a,nan,8,10,5,400,constant\n", "line 2: target_loss is nan"),
        (POINT + "a,2,8,10,5,400,constant\na,2,0,10,5,400,constant\n", "line 3: batch is 0"),
        (POINT + "a,2,8,10,0,400,constant\n", "line 2: steps is 0"),
        (POINT + "a,2,8,10,five,400,constant\n", "line 2: steps is five"),
        (POINT + "a,2,8,10,5,900,constant\n", "line 2: tokens_to_target 900 is not .* 400"),
        (POINT + "a,2,8,10,5,400,warm\n", "line 2: lr_phase 'warm' is unknown"),
        (POINT + "a,2,8,10,5,400,constant\n" * 2, "line 3: repeats line 2"),
        ("target_loss,batch,steps,reached\n2,8,5,maybe\n", "line 2: reached is maybe"),
    ],
)
def test_bad_points_are_refused_by_line(tmp_path, text, says):
    with pytest.raises(InputError, match=says) as error:
        read_points(write(tmp_path, text))
    assert "\n" not in str(error.value)


FINALS = "N,D,gbsz,batch,loss\n350M,1.5B,2^6,x,3.1\n1e9,30B,128,y,2.5\n"
NAMES = "params=N,tokens=D,batch=gbsz"


def test_a_table_is_read_by_the_names_it_has_and_counts_as_they_are_written(tmp_path):
    path = write(tmp_path, FINALS)
    pd.read_csv(path).to_parquet(tmp_path / "runs.parquet")
    for file in (path, tmp_path / "runs.parquet"):
        table, _ = read_table(file, Reading.parse(NAMES, 4096))
        assert list(table.columns) == ["params", "tokens", "batch", "loss", "seq_len"]
        assert table.dtypes.drop("loss").eq("int64").all()
        assert list(table["params"]) == [350_000_000, 1_000_000_000]
        assert list(table["tokens"]) == [1_500_000_000, 30_000_000_000]
        assert list(table["batch"]) == [64, 128]
        assert list(table["seq_len"]) == [4096, 4096]


def test_every_reader_takes_names_and_a_sequence_length(tmp_path):
    runs = write(tmp_path, "id,gbs,it,nats\n007,1K,10,3\n7,1K,10,3\n", "runs.csv")
    read = read_runs(runs, Reading.parse("run=id,batch=gbs,step=it,loss=nats", 8))
    assert list(read["run"]) == ["007", "7"] and list(read["tokens"]) == [80_000] * 2
    points = write(tmp_path, "N,D,goal,batch,steps\n85M,1.5B,3,8,2K\n", "points.csv")
    (row,) = read_points(points, Reading.parse("params=N,tokens=D,target_loss=goal", 4)).to_dict(
        "records"
    )
    assert (row["params"], row["budget_tokens"], row["tokens_to_target"]) == (85e6, 1.5e9, 64_000)


def test_names_may_be_exchanged(tmp_path):
    path = write(tmp_path, "batch,tokens,loss\n640,8,1\n")
    table, _ = read_table(path, Reading.parse("batch=tokens,tokens=batch"))
    assert table.to_dict("records") == [{"tokens": 640, "batch": 8, "loss": 1}]


@pytest.mark.parametrize(
    ("columns", "seq_len", "says"),
    [
        ("", None, "expected OURS=THEIRS"),
        ("params", None, "'params': expected OURS=THEIRS"),
        ("params=N,", None, "'': expected OURS=THEIRS"),
        ("param=N", None, "did you mean params?"),
        ("colour=N", None, "known are params, tokens"),
        ("params=N,params=D", None, "params is given twice"),
        ("params=N,tokens=N", None, "N is named twice"),
        ("params=size", None, "no column size; it has N, D, gbsz, batch, loss"),
        (NAMES, 0, "seq_len: 0 given"),
        (f"{NAMES},seq_len=loss", 8, "line 2: seq_len is 3.1, but 8 was given"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, columns, seq_len, says):
    with pytest.raises(InputError, match=re.escape(says)) as error:
        read_table(write(tmp_path, FINALS), Reading.parse(columns, seq_len))
    assert "\n" not in str(error.value)


def test_a_header_that_repeats_a_name_is_refused(tmp_path):
    with pytest.raises(InputError, match="column 'loss' occurs twice"):
        read_runs(write(tmp_path, "run,batch,loss,loss\na,8,3,3\n"))
