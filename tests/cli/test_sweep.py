"""bss sweep: a tiny sweep, real; its price; the lines that refuse it."""

import json

import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.cli.answers import lowest_loss
from bss.files import locked
from bss.sweeps.engines import JointEngine
from bss.training.run_directory import RunStatus
from tests.cli.called import printed, refused

SETUP = {
    "model": {"family": "tests.models.bigram:Bigram"},
    "text": {"corpus": "synthetic", "seq_len": 16},
    "schedule": {"tokens": 4096, "warmup": 128},
    "evaluation": {"tokens": 256, "first": 256},
    "engine": {"buckets": [2]},
}
CONFIG = {
    "setup": SETUP,
    "axes": {"schedule.batch": [2, 4, 8]},
    "engine": "bss.sweeps.engines:JointEngine",  # in this process, which has compiled before
    "resamples": 10,
    "targets": 2,
}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config in the working directory; what is compiled goes where all tests keep it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bss.sweeps.engines.use_compilation_cache", lambda _: None)

    def write(name="sweep.json", **changes):
        (tmp_path / name).write_text(json.dumps({**CONFIG, **changes}))
        return name

    return write


def test_a_sweep_writes_tables_a_fit_and_a_report_and_trains_no_run_twice(config, tmp_path, capsys):
    asked = "sweep", config(), "--set", "optimizer.lr=2e-3", "--out", "out"
    told = printed(capsys, *asked)
    assert told["report"] == "out/report.html"
    assert "<svg" in (tmp_path / told["report"]).read_text()
    runs = pd.read_parquet(tmp_path / "out/runs.parquet")
    finals = pd.read_csv(tmp_path / "out/finals.csv")
    assert runs["peak_lr"].unique().tolist() == [2e-3]
    assert list(finals["batch"]) == [2, 4, 8]
    assert [*finals.columns[-3:]] == ["commit", "started", "registration"]
    assert finals["run"].tolist() == told["runs"]
    assert runs["run"].unique().tolist() == told["runs"]
    points = pd.read_csv(tmp_path / "out/points.csv")
    assert len(set(points["target_loss"])) == 2
    fits = json.loads((tmp_path / "out/fits.json").read_text())
    (saved,) = fits.values()
    assert told["fit"] == {name: saved[name] for name in told["fit"]}

    curves = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/runs/*/curve.jsonl")}
    assert len(curves) == 3
    held = refused(capsys, *asked, "--axis", "seed=1")
    assert "out holds another study (axes differ): give axes with all of its values" in held
    assert "another --out with --set engine.runs=out/runs" in held
    setup = SETUP | {"optimizer": {"lr": 2e-3}}
    again = bss.sweep(setup, CONFIG["axes"], tmp_path / "out/runs")
    pd.testing.assert_frame_equal(again.runs, runs)
    last = setup | {"schedule": SETUP["schedule"] | {"batch": 8}}
    curve = bss.train(last, tmp_path / "out/runs")
    assert curve["eval_loss"].tolist() == runs.loc[runs["batch"] == 8, "eval_loss"].tolist()
    assert {path: path.stat().st_mtime_ns for path in curves} == curves


@pytest.mark.slow  # five sweeps
def test_axes_that_grow_extend_a_sweep_and_train_only_what_is_new(config, tmp_path, capsys):
    axes = {"schedule.batch": [2], "seed": [0]}
    first = printed(capsys, "sweep", config(axes=axes), "--out", "out")
    curves = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/runs/*/curve.jsonl")}
    more = "sweep", "sweep.json", "--out", "out", "--axis", "seed=0,1"
    second = printed(capsys, *more)
    assert {*first["runs"]} < {*second["runs"]} and len(second["runs"]) == 2
    assert printed(capsys, *more)["runs"] == second["runs"]
    assert {path: path.stat().st_mtime_ns for path in curves} == curves
    grown = config(axes={"seed": [1, 0], "schedule": {"batch": [2, 8]}})
    assert len(printed(capsys, "sweep", grown, "--out", "out")["runs"]) == 4
    line = refused(capsys, *more, "--axis", "schedule.batch=2")  # it lacks batch 8
    assert "holds another study (axes differ)" in line
    way = "--out", "new", "--set", "engine.runs=out/runs"
    assert way[-1] in line
    assert len(printed(capsys, "sweep", "sweep.json", "--axis", "seed=0,1", *way)["runs"]) == 4
    assert len([*tmp_path.glob("out/runs/*/config.json")]) == 4


def test_runs_that_are_too_few_for_points_are_written_all_the_same(config, tmp_path, capsys):
    name = config(axes={"schedule.batch": [2]}, setup={**SETUP, "evaluation": {"tokens": 256}})
    told = printed(capsys, "sweep", name, "--out", "out")
    assert told["fit"] is None
    assert "no fit of E(S)" in told["warnings"][0]
    assert not (tmp_path / "out/fits.json").exists()
    assert len(pd.read_csv(tmp_path / "out/finals.csv")) == 1


@pytest.mark.parametrize("losses", [[None, None], [float("nan"), 3.5], [3.75, 3.5]])
def test_runs_without_a_last_loss_are_not_the_lowest(losses):
    finals = pd.DataFrame({"run": ["a", "b"], "batch": [2, 4], "eval_loss": losses})
    line = lowest_loss(finals)
    assert line == (
        "lowest held-out loss 3.5 of run b, batch 4"
        if losses[1]
        else "no held-out loss was measured at the end of a run"
    )
    assert "no held-out loss" in lowest_loss(finals.drop(columns="eval_loss"))


@pytest.mark.slow
def test_every_condition_has_a_fit_and_runs_that_grow_are_no_points(config, tmp_path, capsys):
    axes = {"schedule.batch": ["2", "4", "8", "0:2 2K:8"], "optimizer.weight_decay": [0, 0.1]}
    told = printed(capsys, "sweep", config(axes=axes), "--out", "out")
    names = [f"optimizer.weight_decay {value}" for value in ("0.0", "0.1")]
    assert [*told["fits"]] == names and told["fit"] is None
    assert len(told["runs"]) == 8
    points = pd.read_csv(tmp_path / "out/points.csv")
    assert {*points["batch"]} == {2, 4, 8} and {*points["condition"]} == {*names}
    assert [text for text in told["warnings"] if text.startswith(f"{names[0]}: 1 of 4 runs")]
    runs = str(tmp_path / "out/runs.parquet")
    line = refused(capsys, "fit", "es", runs, "--resamples", "10")
    assert "optimizer.weight_decay" in line and "0.1" in line


@pytest.mark.parametrize(("decay", "tokens"), [("0%", 0), ("0", 0), (0, 0), ("25%", 1024)])
def test_a_decay_is_a_count_or_a_share_of_the_tokens(config, tmp_path, capsys, decay, tokens):
    setup = bss.ScheduleConfig.decoded({"tokens": "4096", "decay": decay, "warmup": "5%"})
    assert setup["warmup"] == 204 and int(setup["decay"]) == tokens
    schedule = {**SETUP["schedule"], "decay": decay}
    told = printed(capsys, "sweep", config(setup={**SETUP, "schedule": schedule}), "--dry-run")
    assert told["runs"] == 3


def test_one_sweep_writes_a_directory_at_a_time(config, tmp_path, capsys):
    asked = "sweep", config(), "--out", "out"
    with locked(tmp_path / "out" / ".lock"):
        assert "out: another process writes there" in refused(capsys, *asked)
    (tmp_path / "file").touch()
    assert "file: is a file" in refused(capsys, "sweep", "sweep.json", "--out", "file")
    assert not [*tmp_path.glob("out/runs/*")]


class OneFails(JointEngine):
    """Trains all runs but those of batch 4."""

    def train(self, runs, execution, progress=None):
        """Statuses of all."""
        others = [run for run in runs if run.schedule.batch.constant_batch != 4]
        failed = {run.id: RunStatus("failed", message="planted") for run in runs}
        return failed | super().train(others, execution, progress)


def test_a_run_that_failed_is_in_no_table_and_the_status_says_so(config, tmp_path, capsys):
    name = config(engine="tests.cli.test_sweep:OneFails")
    assert main(["sweep", name, "--out", "out"]) == 1
    assert "1 runs failed" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "out/finals.csv")["batch"].tolist() == [2, 8]


def test_numbers_of_axes_and_settings_have_suffixes(config, capsys):
    options = ("--set", "schedule.tokens=.1M", "--set", "optimizer.weight_decay=.5")
    axes = ("--axis", "optimizer.lr=.1,2e-3,.001k", "--axis", "schedule.batch=.5K,1k")
    told = printed(capsys, "sweep", config(), *options, *axes, "--dry-run")
    assert told["runs"] == 6
    assert main(["sweep", config(), *options, *axes, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "0.1" in shown and "0.002" in shown and "1000" in shown


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_directory_without_runs_is_refused(config, capsys, name):
    assert "runs directory" in refused(capsys, "runs", name)


def test_a_dry_run_prices_and_trains_nothing(config, tmp_path, capsys):
    told = printed(capsys, "sweep", config(), "--axis", "seed=0,1", "--dry-run")
    assert (told["runs"], told["trained"]) == (6, 6 * 4096)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]


def no_logits(model, params, sequences):
    """A metric that the family has no function for."""
    return model.logits(params, sequences)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["text.corpus=files:/nodir/*.txt"], "matches no file"),
        (["text.corpus=shards:nodir"], "nodir"),
        (["text.corpus=stdlib", "text.tokenizer=nodir/tokenizer.json"], "'nodir/tokenizer.json'"),
        (["text.corpus=stdlib", "text.tokenizer=bad.json"], "bad.json"),
        (["text.corpus=stdlib", "text.root=bad.json"], "root: bad.json is a file"),
        (["text.corpus=nowhere/en"], "no data set 'nowhere/en' is prepared"),
        (["engine.devices=9"], "execution.devices is 9; this machine has"),
        (["engine.fsdp=9"], "execution.fsdp is 9"),
        (['engine.trackers=["mlflow"]'], "'mlflow' is unknown"),
        (["engine.attention=fast"], "no fast; ask for auto"),
        (['evaluation.metrics=["perplexed"]'], "'perplexed' is unknown"),
        (
            ['evaluation.metrics=["tests.cli.test_sweep:no_logits"]'],
            "no_logits cannot be measured: the model has no logits_fn",
        ),
    ],
)
def test_what_every_run_would_refuse_is_one_line_before_anything_starts(
    config, tmp_path, capsys, changes, told
):
    (tmp_path / "bad.json").write_text("{}")
    options = [part for change in changes for part in ("--set", change)]
    for ending in (["--dry-run"], ["--out", "out"]):
        assert told in refused(capsys, "sweep", config(), *options, *ending)
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.json", "bad.json"}


@pytest.mark.parametrize("seed", ["1" + 22 * "0", "-1" + 22 * "0"])
def test_a_seed_that_no_table_can_hold_is_refused(config, capsys, seed):
    line = refused(capsys, "sweep", config(), "--axis", f"seed={seed}", "--dry-run")
    assert f"seed is {seed}; write an integer of 64 bits" in line


def test_workers_are_not_started_for_what_they_would_refuse(config, tmp_path, capsys):
    line = refused(
        capsys, "sweep", config(engine="local"), "--set", "engine.fsdp=9", "--out", "out"
    )
    assert "fsdp is 9" in line and not (tmp_path / "out").exists()


PYTHON = """
import bss
CONFIG = {"setup": bss.Setup(model="pico", schedule=bss.ScheduleConfig(tokens=4096))}
"""


def test_a_config_in_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PYTHON)
    axis = "schedule.batch=2,4"
    told = printed(capsys, "sweep", "mine.py", "--axis", axis, "--dry-run")
    assert told["runs"] == 2
    (tmp_path / "mine.py").write_text("def get_config(size):\n    return {'title': int(size)}")
    assert "title is 3; expected str" in refused(capsys, "sweep", "mine.py:3", "--dry-run")
    assert "ValueError" not in (line := refused(capsys, "sweep", "mine.py:x", "--dry-run"))
    assert "config mine.py:x: invalid literal" in line


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ({"axes": {"schedule.bach": [2]}}, [], "schedule.bach is not a field of"),
        ({"setup": {"modle": "pico"}}, [], "setup.modle is not a field of Setup"),
        ({"setup": 3}, [], "setup is 3"),
        ({"setup": {"engine": 3}}, [], "setup.engine is 3"),
        ({"sets": 3}, [], "sets is not a field"),
        ({"engine": "locl"}, [], "did you mean 'local'"),
        ({"axis": 3}, [], "axis is 3"),
        ({"resamples": 1}, [], "resamples is 1"),
        ({}, ["--set", "optimiser.lr=1"], "did you mean 'optimizer'"),
        ({}, ["--set", "optimizer.lr=fast"], "setup.optimizer.lr is 'fast'; expected float"),
        ({}, ["--set", "optimizer.lr"], "write PATH=VALUE"),
        ({}, ["--set", "schedule.tokens.x=1"], "schedule.tokens.x=1: tokens is 4096"),
        ({}, ["--axis", "schedule.batch=3"], "multiple of no bucket"),
        ({}, ["--axis", "seed=0", "--axis", "seed=1"], "seed occurs twice"),
        ({"axes": {"schedule.batch": [3]}}, [], "multiple of no bucket"),
        ({"results": ""}, [], "--out is missing"),
    ],
)
def test_bad_sweeps(config, tmp_path, capsys, changes, options, told):
    name = config(**{"results": "out", **changes})
    assert told in refused(capsys, "sweep", name, *options)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("c.json", "[]", "no JSON object"),
        ("c.json", "{", "is not JSON"),
        ("c.py", "X = 3", "holds no config"),
        ("c.py", "import nowhere_at_all", "ModuleNotFoundError: No module named"),
        ("c.py:nano", "CONFIG = {}", "no get_config that takes a size"),
        ("c.txt", "", "write FILE.py, FILE.py:SIZE or FILE.json"),
        ("c.py", None, "config not found"),
    ],
)
def test_files_that_are_no_config(tmp_path, monkeypatch, capsys, name, text, told):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name.partition(":")[0]).write_text(text)
    assert told in refused(capsys, "sweep", name, "--dry-run")
