"""Held-out losses under neutral names: by their file, run, split or context."""

import pytest

from bss.importers import LogOptions
from bss.importers.batches import Batches
from tests.importers.imported import the_run

EIGHT = LogOptions(Batches.parse(["8"]), 64)
ROWS = "10,5.0\n20,4.5\n30,4.0\n"


def options(**columns):
    return LogOptions(EIGHT.batches, 64, columns=columns)


@pytest.mark.parametrize(
    ("name", "held_out"),
    [("b8-val.csv", True), ("b8_val_loss.csv", True), ("eval.csv", True), ("my-test.csv", False),
     ("eval-of-lr.csv", False), ("b8.csv", False)],
)  # fmt: skip
def test_a_file_of_held_out_losses(tmp_path, name, held_out):
    (tmp_path / name).write_text("step,loss\n" + ROWS)
    table, report = the_run([tmp_path / name], EIGHT, "auto")
    assert ("eval_loss" in table, "loss" in table) == (held_out, not held_out)
    assert any("is read as a held-out loss" in note for note in report.notes) == held_out
    (tmp_path / name).write_text("step,train_loss\n" + ROWS)
    assert "loss" in the_run([tmp_path / name], EIGHT, "auto")[0]


def test_a_name_that_the_user_gives_is_moved_only_for_a_file_of_a_loss(tmp_path):
    (tmp_path / "b8-val.csv").write_text("step,value\n" + ROWS)
    assert "loss" in the_run([tmp_path / "b8-val.csv"], options(loss="value"), "plain")[0]
    (tmp_path / "b8-val_loss.csv").write_text("step,value\n" + ROWS)
    assert "loss" not in the_run([tmp_path / "b8-val_loss.csv"], options(loss="value"), "plain")[0]


def test_scalars_of_the_page_of_tensorboard_are_one_run(tmp_path):
    for tag, shift in (("train_loss", 0.0), ("val_loss", 0.25), ("lr", 0.0)):
        rows = "".join(f"1.7e9,{step},{5 - step / 20 + shift}\n" for step in (10, 20, 30))
        path = tmp_path / f"run-b8-tag-{tag}.csv"
        path.write_text("Wall time,Step,Value\n" + rows)
    table, report = the_run([tmp_path], EIGHT, "auto")
    assert report.run == "b8" and list(table["loss"]) == [4.5, 4.0, 3.5]
    assert list(table["eval_loss"]) == [4.75, 4.25, 3.75]


def test_contexts_of_long_tables(tmp_path):
    contexts = {"train": 0.0, "validate": 0.25}
    rows = [
        f"k,loss,{5 - step / 20 + shift},{step},{context}"
        for step in (10, 20, 30)
        for context, shift in contexts.items()
    ]
    text = "experimentKey,metricName,metricValue,step,runContext\n" + "\n".join(rows) + "\n"
    (tmp_path / "metrics.csv").write_text(text)
    table, report = the_run([tmp_path / "metrics.csv"], EIGHT, "auto")
    assert report.run == "k" and list(table["eval_loss"]) == [4.75, 4.25, 3.75]
    assert list(table["loss"]) == [4.5, 4.0, 3.5]


@pytest.mark.parametrize("label", ["test", "validate", "held-out", "Eval", "dev"])
def test_labels_of_splits(tmp_path, label):
    rows = "".join(f"{s},{5 - s / 20},train\n{s},{6 - s / 20},{label}\n" for s in (10, 20, 30))
    (tmp_path / "a.csv").write_text("step,loss,split\n" + rows)
    table, _ = the_run([tmp_path / "a.csv"], EIGHT, "auto")
    assert list(table["eval_loss"]) == [5.5, 5.0, 4.5] and list(table["loss"]) == [4.5, 4.0, 3.5]
