"""formats.toml: what every format declares, and what fields stand for."""

import re

import pandas as pd
import pytest

from bss import import_logs
from bss.errors import InputError
from bss.importers import IMPORTERS, LogOptions
from bss.importers.batches import Batches
from bss.importers.formats import with_fields
from bss.importers.names import declared
from tests.formats import PAGE, TABLE, with_table
from tests.importers.imported import the_run
from tests.importers.test_corpus import CORPUS, EXPECTED

FORMATS = declared("formats.toml")


def test_the_table_of_formats_is_made_of_the_declarations():
    """`python -m tests.formats` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert TABLE.search(page) and page == with_table(page)


def test_every_format_is_declared_with_a_sample_of_each_form():
    assert list(IMPORTERS) == list(FORMATS)
    for name, declaration in FORMATS.items():
        assert declaration["input"]
        for form in declaration.get("forms", ()):
            assert EXPECTED[form["sample"]]["format"] == name


FIELDS = re.compile(with_fields(r"^row\b<step=step|iter><loss=loss><lr?=lr|learning rate>.*"))


@pytest.mark.parametrize(
    "line",
    [
        "row step=10 loss=3.25 lr=1e-3",
        "row: loss: 3.25, step: 10, learning_rate... lr: 0.001",
        'row {"step": 10, "loss": 3.25, "lr": 1e-3}',
        "row Step = 10 | Loss = 3.25 | Learning Rate = 0.001",
        "row (iter 9) step=10;loss=3.25;lr=0.001;",
        "row val loss: 9.5, ema loss: 9.0, step: 10, loss: 3.25, lr: 1.0E-03",
        "row z_loss=0.1 train/loss=9 loss=3.25 step=10 lr=0.001 dt=1ms",
    ],
)
def test_fields_are_read_in_any_order_and_with_any_separators(line):
    found = FIELDS.search(line).groupdict()
    assert {name: float(value) for name, value in found.items()} == {
        "step": 10,
        "loss": 3.25,
        "lr": 0.001,
    }


def test_a_field_that_may_be_missing_and_marks_of_thousands():
    found = FIELDS.search("row step=1,024,000 loss=3.25, lr_scale=2").groupdict()
    assert found == {"step": "1,024,000", "loss": "3.25", "lr": None}
    assert FIELDS.search("row step=10, ema loss=3.25") is None


CONSOLES = ["slowrun.out", "internevo.log", "paddle.log", "litgpt.log", "epfl.log", "clu.log"]


@pytest.mark.parametrize("sample", CONSOLES)
def test_a_launcher_and_colours_before_lines_change_no_row(tmp_path, sample):
    """Also where lines that are no rows begin with a bracket."""
    lines = (CORPUS / sample).read_text(encoding="utf-8").splitlines()
    (tmp_path / sample).write_text("".join(f"[rank0]: \x1b[32m{line}\x1b[0m\n" for line in lines))
    options = dict(zip(*[iter(EXPECTED[sample]["arguments"])] * 2, strict=True))
    given = {
        "seq_len": int(options.get("--seq-len", 0)) or None,
        "batch": options.get("--batch", ()),
    }
    tables = [import_logs(path / sample, **given).runs for path in (CORPUS, tmp_path)]
    pd.testing.assert_frame_equal(*tables)


TWO_SETS = {
    "internevo": (
        "record_current_batch_training_metrics -- step={index} loss={loss} "
        "num_consumed_tokens={tokens}\n"
        "Validation on en: step={step} val/en_loss={en}\n"
        "Validation on zh: step={step} val/zh_loss={zh}\n",
        ("val/en_loss", "val/zh_loss"),
    ),
    "nanogpt": (
        "iter {index}: loss {loss}, time 9.0ms\n"
        "step {step}: train loss {loss}, val loss {en}\n"
        "step {step}: train loss {loss}, test loss {zh}\n",
        ("val loss", "test loss"),
    ),
    "modded-nanogpt": (
        "step:{step}/30 train_loss:{loss} train_time:9ms step_avg:9.0ms\n"
        "step:{step}/30 val_loss:{en} train_time:9ms step_avg:9.0ms\n"
        "step:{step}/30 test_loss:{zh} train_time:9ms step_avg:9.0ms\n",
        ("val_loss", "test_loss"),
    ),
}


@pytest.mark.parametrize("name", TWO_SETS)
def test_of_several_held_out_sets_the_first_is_read_or_the_chosen_one(tmp_path, name):
    """The last set of a step, which wins where their names are not told apart, is far off."""
    lines, (first, second) = TWO_SETS[name]
    text = ""
    for step in range(1, 31):
        loss = round(5 - step / 20, 3)
        en, zh = round(loss + 0.25, 3), round(loss + 3, 3)
        text += lines.format(
            step=step, index=step - 1, tokens=512 * step, loss=loss, en=en, zh=zh
        )  # fmt: skip
    (tmp_path / "run.log").write_text(text)
    for chosen, apart in ((None, 0.25), (first, 0.25), (second, 3.0)):
        columns = {} if chosen is None else {"eval_loss": chosen}
        options = LogOptions(Batches.parse(["8"]), 64, columns=columns)
        table, report = the_run([tmp_path / "run.log"], options, name)
        assert len(table) == 30 and table["loss"].iloc[-1] == 3.5 and report.restarts == 0
        assert (table["eval_loss"] - table["loss"]).to_numpy() == pytest.approx(apart)
        told = f"read is {first}, the first; others are {second}; choose with --columns eval_loss="
        assert any(told in note for note in report.notes) == (chosen is None)


@pytest.mark.parametrize(
    ("sample", "seconds"),
    [
        ("nemo-plain.log", 10.2),
        ("llmc-2024-04.log", 0.03658),
        ("modded-stdout.log", 0.0612),
        ("clu.log", 0.08),  # 12.5 steps per second
    ],
)
def test_step_times_are_in_seconds_where_a_line_has_one(sample, seconds):
    """Read off the lines of each sample: seconds, milliseconds, or steps per second."""
    options = dict(zip(*[iter(EXPECTED[sample]["arguments"])] * 2, strict=True))
    length = int(options.get("--seq-len", 0)) or None
    runs = import_logs(CORPUS / sample, seq_len=length, batch=options.get("--batch", ())).runs
    assert runs["step_time"].dropna().to_numpy() == pytest.approx(seconds)
    assert runs["step_time"].notna().any()


def test_a_row_without_a_step_time_is_read(tmp_path):
    """llm.c prints milliseconds, or nothing that is a time; modded-nanogpt prints nan at first."""
    line = "step    1/74 | train loss 5.0 | norm 1.2 | lr 3.00e-04 | {}\n"
    text = line.format("(36.58 ms | 112241 tok/s)") + line.format("-").replace("1/74", "2/74")
    (tmp_path / "run.log").write_text(text)
    options = LogOptions(Batches.parse(["8"]), 64)
    table, _ = the_run([tmp_path / "run.log"], options, "llm.c")
    assert table["step_time"].tolist()[0] == pytest.approx(0.03658)
    assert len(table) == 2 and table["step_time"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("sample", "whole", "damaged", "told"),
    [
        ("bigvision.log", "[0m val/loss = 3.10", "[0m val=loss = 3.10", "1 lines lack values"),
        ("bigvision.log", "[0m val/loss = 3.10", "[0m val/losz = 3.10", "1 lines lack values"),
        ("bigvision.log", "3.1075", "3.1O75", "1 values of val/loss are no numbers"),
        ("bigvision.log", "\x1b[35m[450]\x1b[0m v", "#[35m[450]\x1b[0m v", "1 lines resemble rows"),
        ("bigvision.log", "[300]\x1b[0m v", "[300]$[0m v", "1 lines resemble rows"),
        ("bigvision.log", "3.5022\n", "3.5022 ", "1 lines resemble rows"),
        (
            "hf-notebook.ipynb",
            "<td>3.405800</td>",
            "<tb>3.405800</td>",
            "1 rows have other columns",
        ),
        ("buildgpt2-edu/log.txt", "\n0 train", "\n  train", "1 lines resemble rows"),
        ("slowrun.out", "", "", "1 lines have losses of averaged weights"),
    ],
)
def test_a_loss_that_is_not_read_is_told(tmp_path, sample, whole, damaged, told):
    """A byte of a line or a cell is damaged; slowrun prints a loss of averaged weights."""
    text = (CORPUS / sample).read_bytes().decode()
    assert whole in text
    (tmp_path / sample).parent.mkdir(exist_ok=True)
    (tmp_path / sample).write_bytes(text.replace(whole, damaged, 1).encode())
    options = LogOptions(Batches.parse(["8"]), 64)
    _, report = the_run([tmp_path / sample], options, "auto")
    assert any(told in note for note in report.notes)
    if damaged:
        _, report = the_run([CORPUS / sample], options, "auto")
        assert not any(told in note for note in report.notes)


def test_a_notebook_whose_table_has_no_steps_is_refused(tmp_path):
    text = (CORPUS / "hf-notebook.ipynb").read_text(encoding="utf-8")
    (tmp_path / "a.ipynb").write_text(text.replace("<th>Step</th>", "<th>Stop</th>"))
    with pytest.raises(InputError, match="a row without a Step or an Epoch"):
        the_run([tmp_path / "a.ipynb"], LogOptions(), "auto")


def test_two_dicts_in_a_line_are_both_read_and_a_number_too_large_is_refused(tmp_path):
    text = (CORPUS / "hf-logging-steps.log").read_text(encoding="utf-8")
    joined = text.replace("}\n{'eval_loss'", "}@{'eval_loss'", 1)
    assert joined != text
    tables = []
    for name, content in (("a", text), ("b", joined)):
        (tmp_path / f"{name}.log").write_text(content)
        table, _ = the_run([tmp_path / f"{name}.log"], LogOptions(Batches.parse(["8"]), 64), "auto")
        tables.append(table.drop(columns="run"))
    pd.testing.assert_frame_equal(*tables)
    (tmp_path / "c.csv").write_text("step,loss\n" + "".join(f"{i},3.9e6966\n" for i in range(9)))
    with pytest.raises(InputError, match=r"line 2: loss is '3\.9e6966'; expected a number"):
        import_logs(tmp_path / "c.csv", batch="8", seq_len=64)
