"""What cannot be imported is refused in one line that says what to do."""

import pickle

import pytest

from bss.tables import read_runs
from tests.cli.called import printed, refused
from tests.importers.test_samples import SAMPLES
from tests.importers.writers import SEQ_LEN, llmc, megatron, nanotron, rows_of_run, trainer_state

CHART = str(SAMPLES / "wandb-chart.csv")
EIGHT = ("--batch", "8", "--seq-len", str(SEQ_LEN))


def refusal(capsys, tmp_path, *arguments: str) -> str:
    return refused(capsys, "import", *arguments, "-o", str(tmp_path / "runs.parquet"))


def file(tmp_path, name: str, text: str) -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        (
            [],
            "2 are refused: run chart-b8 does not give its batch in sequences; give --batch "
            "'chart-b8=512'",
        ),
        (["chart-b8=8"], "run chart-b16 does not give its batch"),
        (["chart*=8", "tiny*=4"], "'tiny*' matches no run; there are chart-b8, chart-b16"),
        (["chart*=8", "*b8=4"], "'chart*' and '*b8' both match run chart-b8"),
        (["chart*=0:8 x:16"], "batch schedule start: 'x' is not a count"),
    ],
)
def test_batches_of_runs(capsys, tmp_path, batches, says):
    given = [f"--batch={batch}" for batch in batches]
    assert says in refusal(capsys, tmp_path, "wandb", CHART, "--seq-len", "64", *given)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "_step,train/grad_norm\n1,2\n", "no loss is known by its name"),
        (
            "a.csv",
            '"epoch","r - eval/loss","r - eval/loss__MIN"\n"1","3","3"\n',
            "x axis is epoch",
        ),
        ("a.csv", "_step,train/loss\n1,3\n2,high\nx,2\n4,2\n", "line 3: train/loss is 'high'"),
        ("a.csv", "_step,train/loss\n1,3\n2\n3\n4,1\n", "line 3: has 1 cells; expected 2"),
        ("a.jsonl", '{"_step": 1, "train/loss": 3}\n{"_step": 2,\n{\n{}\n', "line 2: is not"),
        ("trainer_state.json", '{"log_history": 3}', "log_history is not a list"),
        ("trainer_state.json", '{"log_history": [{"step": "x", "loss": 1}]}', "step is 'x'"),
        ("trainer_state.json", '{"log_history": [{"loss": 3.1}]}', "no step and no count"),
        (
            "trainer_state.json",
            '{"log_history": [{"step": 3, "train_loss": 1}]}',
            "no loss is known",
        ),
        (
            "a.jsonl",
            '{"step": 1, "loss": 3}\n[2, 2.9]\n{"step": 3, "loss": 2}\n',
            "line 2: is a JSON list",
        ),
        ("a.txt", "nothing\n", "is not recognised (any known format)"),
        ("a.log", "s:1 tel:x\n", "is not recognised"),
        (
            "a.log",
            "s:1 tel:3.0\n" + 2 * "s:2 tel:x\n" + "s:3 tel:2.0\n",
            "line 2: eval_loss is 'x'",
        ),
        ("a.log", "s:1 tel:3.0\n" + 3 * "s:2 tel:2.9 lr:3\n", "line 2: is not a complete row"),
    ],
)
def test_files(capsys, tmp_path, name, text, says):
    assert says in refusal(capsys, tmp_path, "auto", file(tmp_path, name, text), *EIGHT)


def test_pickles_are_refused_by_name(capsys, tmp_path):
    (tmp_path / "log.csv").write_bytes(pickle.dumps({"loss": [1.0]}))
    for name in ("log.csv", "model.pt", "training_args.bin"):
        (tmp_path / name).touch()
        assert f"{name}: is a pickle" in refusal(capsys, tmp_path, "auto", str(tmp_path / name))


def test_files_that_are_not_there(capsys, tmp_path):
    assert "no such file" in refusal(capsys, tmp_path, "auto", str(tmp_path / "none.csv"))
    assert "'wandbb' is unknown; did you mean 'wandb'" in refusal(capsys, tmp_path, "wandbb", CHART)
    assert "does not exist" not in refusal(capsys, tmp_path, "auto", str(tmp_path))


def test_a_run_twice(capsys, tmp_path):
    assert "is given twice" in refusal(capsys, tmp_path, "wandb", CHART, CHART, *EIGHT)
    other = file(tmp_path, "other.csv", (SAMPLES / "wandb-chart.csv").read_text())
    assert "chart-b8 occurs twice, in" in refusal(capsys, tmp_path, "wandb", CHART, other, *EIGHT)


def test_units_that_contradict(capsys, tmp_path):
    rows = rows_of_run(0)
    path = str(megatron(tmp_path, rows))
    assert "logs a batch of 8 at step" in refusal(capsys, tmp_path, "auto", path, "--batch=4")
    assert "lengths 64 and 128 contradict" in refusal(
        capsys, tmp_path, "auto", path, "--seq-len=128"
    )
    path = str(trainer_state(tmp_path, [{**row, "tokens": row["tokens"] + 64} for row in rows]))
    assert "steps and batches make" in refusal(capsys, tmp_path, "auto", path, *EIGHT)
    path = str(nanotron(tmp_path, rows_of_run(0, schedule="16")))
    assert "but --batch and --seq-len make" in refusal(capsys, tmp_path, "auto", path, *EIGHT)


@pytest.mark.parametrize(
    ("regex", "says"),
    [
        ("(", "--run-regex '(': missing"),
        ("b8", "write named groups"),
        (r"(?P<size>\d+M)", "does not match run 'chart-b8'"),
        (r"(?P<batch>b\d+)", "is not start:batch"),
        (r"(?P<size>b\d+)", "--run-regex size: 'b8' is not a count"),
        (r"(?P<lr>chart)", "--run-regex lr: 'chart' is not a number"),
    ],
)
def test_names_of_runs(capsys, tmp_path, regex, says):
    given = ["--run-regex", regex, "--seq-len", "64"]
    given += [] if "batch" in regex else ["--batch", "8"]
    assert says in refusal(capsys, tmp_path, "wandb", CHART, *given)


def test_names_say_batch_size_rate_and_seed(capsys, tmp_path):
    path = llmc(tmp_path, rows_of_run(0, schedule="4")).rename(tmp_path / "85M_b4_lr3e-4_s2.log")
    out = str(tmp_path / "runs.csv")
    regex = r"(?P<size>\w+?)_b(?P<batch>\d+)_lr(?P<lr>[\de.-]+)_s(?P<seed>\d)"
    given = ["import", "auto", str(path), "-o", out, "--run-regex", regex, "--seq-len", "64"]
    [run] = printed(capsys, *given)["runs"]
    assert (run["batch"], run["batch_from"]) == ("4", "--run-regex")
    row = read_runs(out).iloc[0]
    assert (row["params"], row["peak_lr"], row["seed"]) == (85e6, 3e-4, 2)


def test_a_failed_import_leaves_nothing(capsys, tmp_path):
    refusal(capsys, tmp_path, "wandb", CHART, "--seq-len", "64", "--batch=chart-b8=8")
    assert list(tmp_path.iterdir()) == []
