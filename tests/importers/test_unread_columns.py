"""Columns that look like a loss, a learning rate, a step or a time: read, or named in a note."""

import json

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from bss.importers.imported import import_logs
from bss.tables.likeness import kind_of_name, unread_notes
from tests.cli.called import printed, refused
from tests.importers.imported import the_run
from tests.importers.test_corpus import CORPUS

EIGHT = LogOptions(Batches.parse(["8"]), 64)
WORDS = ("val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout", "held-out")
FORMS = ("{}/loss", "{}_loss", "{}_ema_loss", "loss/{}", "{}/c4/ce_loss", "{}.nll", "{} avg loss")
HELD_OUT = [form.format(word) for word in WORDS for form in FORMS]
OTHERS = ["z_loss", "moe/aux_loss", "smoothedLoss", "lm-loss-2", "lossAvg"]
OTHERS += ["muon_lr", "optim.learning rate 2", "iter_count", "GlobalStep2", "dt_sec"]
STEPS = np.arange(10, 60, 10)


def columns_with(names):
    losses = {name: 5 - STEPS / 100 - i / 1000 for i, name in enumerate(names)}
    return pd.DataFrame({"step": STEPS, "train_loss": 6 - STEPS / 100, **losses})


def csv(folder, names):
    columns_with(names).to_csv(folder / "r.csv", index=False)
    return folder / "r.csv"


def json_lines(folder, names):
    rows = columns_with(names).to_dict("records")
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "r.jsonl"


def history(folder, names):
    table = columns_with(names).rename(columns={"step": "_step", "train_loss": "train/loss"})
    table.to_parquet(folder / "r.parquet")
    return folder / "r.parquet"


def long(folder, names):
    table = columns_with(names).melt("step", var_name="metric")
    table.to_csv(folder / "r.csv", index=False)
    return folder / "r.csv"


def trainer_state(folder, names):
    rows = columns_with(names).rename(columns={"train_loss": "loss"}).to_dict("records")
    path = folder / "r" / "trainer_state.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"log_history": rows}))
    return path


def console(folder, names):
    """Rows of a console, whose names have no spaces or slashes."""
    names = [name.replace(" ", "_").replace("/", "_") for name in names]
    rows = columns_with(names).to_dict("records")
    lines = [
        f"step:{row['step']:.0f}/50 train_loss:{row['train_loss']:.4f}"
        + "".join(f" {name}:{row[name]:.4f}" for name in names)
        + " train_time:1s step_avg:9.1ms\n"
        for row in rows
    ]
    (folder / "r.log").write_text("".join(lines))
    return folder / "r.log"


@pytest.mark.parametrize("write", [csv, json_lines, history, long, trainer_state, console])
@pytest.mark.parametrize("kind", ["held out", "others", "one by one"])
def test_each_is_read_as_held_out_or_named(tmp_path, write, kind):
    lists = {
        "held out": [HELD_OUT],
        "others": [OTHERS],
        "one by one": [[n] for n in HELD_OUT[::20]],
    }
    for number, names in enumerate(lists[kind]):
        folder = tmp_path / str(number)
        folder.mkdir()
        table, report = the_run([write(folder, names)], EIGHT, "auto")
        assert list(table["loss"].dropna()) == pytest.approx(list(6 - STEPS / 100))
        plain = [name.replace(" ", "_").replace("/", "_") for name in names]
        names = plain if write is console else names
        read = set(names) - set(report.unread)
        assert len(read) <= 1
        if read:
            assert kind != "others" and "eval_loss" in table
            value = 5 - STEPS / 100 - names.index(*read) / 1000
            assert list(table["eval_loss"]) == pytest.approx(list(value))
        told = " ".join(unread_notes(report.unread, shown=1000))
        assert all(name in told for name in report.unread)
        assert set(unread_notes(report.unread)) <= set(report.notes)


@pytest.mark.parametrize(
    "name",
    [
        "loss_scale",
        "tokens_per_sec",
        "lr_scheduler",
        "warmup_steps",
        "_runtime",
        "ppl",
        "epoch",
    ],
)
def test_other_quantities_are_not_named(name):
    assert kind_of_name(name) == ""


@pytest.mark.parametrize("write", [csv, history, long, json_lines, console])
@pytest.mark.parametrize("name", ["dev_perplexity_loss", "val/ppl", "loss_eval_perplexity"])
def test_perplexities_of_held_out_data_are_told(tmp_path, write, name):
    table, report = the_run([write(tmp_path, [name])], EIGHT, "auto")
    assert "eval_loss" not in table and list(table["loss"]) == list(6 - STEPS / 100)
    shown = name.replace("/", "_") if write is console else name
    assert f"not read, in perplexity by name: {shown}" in report.notes


def test_a_perplexity_next_to_its_loss_needs_no_note(tmp_path):
    _, report = the_run([csv(tmp_path, ["val_loss", "val_ppl"])], EIGHT, "auto")
    assert not report.unread


@pytest.mark.parametrize("write", [csv, history, long, json_lines])
@pytest.mark.parametrize("name", ["dev_c4_loss", "validation_set_nll", "loss_on_held_out_web"])
def test_one_clear_name_of_a_held_out_loss_is_read(tmp_path, write, name):
    table, report = the_run([write(tmp_path, [name])], EIGHT, "auto")
    assert list(table["eval_loss"]) == pytest.approx(list(5 - STEPS / 100))
    assert list(table["loss"].dropna()) == pytest.approx(list(6 - STEPS / 100))
    assert f"{name} is read as the held-out loss, by its name" in report.notes


@pytest.mark.parametrize(
    "names", [["best_val_loss"], ["eval_aux_loss"], ["dev_a_loss", "dev_b_ce"]]
)
def test_other_or_several_losses_of_held_out_data_are_only_named(tmp_path, names):
    table, report = the_run([csv(tmp_path, names)], EIGHT, "auto")
    assert "eval_loss" not in table and set(report.unread) == set(names)


@pytest.mark.parametrize("write", [csv, history, long, json_lines])
@pytest.mark.parametrize(
    "name", ["val/loss", "valid_loss", "test/loss", "dev_loss", "heldout_loss"]
)
def test_usual_names_of_held_out_losses_alone(tmp_path, write, name):
    table, report = the_run([write(tmp_path, [name])], EIGHT, "auto")
    assert "eval_loss" in table and not report.unread


def test_averages_of_weights_are_named_and_chosen(tmp_path, capsys):
    given = ["import", "auto", str(CORPUS / "modded-averages.txt"), "-o", str(tmp_path / "o.csv")]
    given += ["--batch", "512", "--seq-len", "1024"]
    [run] = printed(capsys, *given)["runs"]
    assert run["unread"] == ["val_avg_loss", "val_ema_loss"]
    assert run["notes"] == [
        "not read, by name held-out losses: val_avg_loss, val_ema_loss; "
        "--columns eval_loss=NAME reads one"
    ]
    [run] = printed(capsys, *given, "--columns", "eval_loss=val_ema_loss")["runs"]
    assert pd.read_csv(tmp_path / "o.csv")["eval_loss"].iloc[-1] == 4.997 and not run["notes"]
    line = refused(capsys, *given, "--columns", "eval_loss=val_swa_loss")
    assert (
        "no value val_swa_loss for eval_loss; its rows have step_avg, train_time, val_avg_loss,"
        in line
    )


def test_stats_of_blocks_have_losses_and_step_times():
    table, report = the_run([CORPUS / "mllog-blocks.txt"], LogOptions(), "auto")
    trained = table["loss"].notna()
    assert trained.sum() == 10 and set(table["step_time"][trained]) == {0.076}
    assert table["step"][trained].tolist() == [16 * k + 1 for k in range(10)]
    assert table["step"][~trained].tolist() == [80, 160] and not report.notes


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("loss=val/loss", "is named as a held-out loss; write eval_loss=val/loss"),
        ("eval_loss=val_bpb", "is named as bits per byte; a loss is in nats per token"),
        ("eval_loss=val_ppl", "is named as perplexity; a loss is in nats per token"),
    ],
)
def test_another_loss_is_refused(given, says):
    ours, _, theirs = given.partition("=")
    with pytest.raises(InputError, match=says):
        LogOptions(columns={ours: theirs})


def test_the_hint_offers_both_losses(tmp_path):
    (tmp_path / "r.csv").write_text("_step,objective\n1,3\n2,2\n")
    with pytest.raises(
        InputError, match=r"--columns loss=NAME, a held-out one with eval_loss=NAME"
    ):
        read_logs([tmp_path / "r.csv"], ANY, EIGHT)


def test_milliseconds_become_seconds(tmp_path):
    path = csv(tmp_path, ["dt_ms"])
    [(table, _)] = import_runs(read_logs([path], ANY, EIGHT)[0], EIGHT)
    assert table["step_time"].to_numpy() == pytest.approx((5 - STEPS / 100) / 1000)


def test_a_test_loss_at_the_end_is_no_curve(tmp_path):
    rows = [{"step": step, "loss": 5 - step / 100} for step in (10, 20, 30, 40)]
    lines = [json.dumps(row) for row in [*rows, {"step": 40, "test_loss": 4.7}]]
    (tmp_path / "r.jsonl").write_text("\n".join(lines) + "\n")
    table, report = the_run([tmp_path / "r.jsonl"], EIGHT, "auto")
    assert "eval_loss" not in table and report.unread == ("test_loss",)
    named = LogOptions(EIGHT.batches, 64, columns={"eval_loss": "test_loss"})
    assert "eval_loss" in the_run([tmp_path / "r.jsonl"], named, "auto")[0]
    history = "".join(f"{row['step']},{row['loss']},\n" for row in rows) + "40,,4.7\n"
    (tmp_path / "w.csv").write_text("_step,train/loss,test/loss\n" + history)
    table, report = the_run([tmp_path / "w.csv"], EIGHT, "auto")
    assert "eval_loss" not in table and report.unread == ("test/loss",)


def test_held_out_losses_on_lines_of_their_own_are_named(tmp_path):
    rows = [
        f"step {i:05d}/00040 (1.00%) | loss: {4 - i / 20:.3f} | grad norm: 0.1 | lrm: 1.00 | "
        "dt: 9.00ms | tok/sec: 1,000 | mfu: 1\n"
        + (f"Step {i:05d} | Validation bpb: 1.{i}\n" if i % 20 == 0 else "")
        for i in range(0, 40, 10)
    ]
    (tmp_path / "a.log").write_text("".join(rows))
    report = import_logs(tmp_path / "a.log", 64, batch=8).report.runs[0]
    assert report.rows == 4 and report.unread == ("Validation bpb",)
    assert "not read, in bits per byte by name: Validation bpb" in report.notes
