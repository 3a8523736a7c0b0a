"""bss compile: a run on forced devices of this CPU, and on a device of little memory."""

import json
import os
import shutil

import jax
import pytest

from bss.cli import compile as command
from bss.cli import main
from bss.training.hardware import Target
from bss.values import to_dict
from tests.cli.called import printed, refused


@pytest.fixture
def run_file(tiny_run, tmp_path):
    """A run in micro-batches of 2 and 4."""
    file = tmp_path / "run.json"
    job = {"run": to_dict(tiny_run), "execution": {"buckets": [2, 4]}}
    file.write_text(json.dumps(job))
    return file


def on_small_device(monkeypatch, memory):
    """Replace the machine by one device of this CPU with so much memory."""
    target = Target("small", ("small",), memory, 1e12)
    monkeypatch.setattr(command, "devices_of", lambda _: jax.local_devices()[:1])
    monkeypatch.setattr(command, "target_named", lambda _: target)


def test_the_train_step_of_a_run_on_two_devices(tiny_run, run_file, capsys):
    found = printed(capsys, "compile", str(run_file), "--on", "cpu:2")
    assert (found["machine"], found["devices"], found["fits"]) == ("cpu:2", 2, None)
    assert [program["bucket"] for program in found["programs"]] == [2, 4]
    for program in found["programs"]:
        assert program["state_bytes"] == 4 * (3 * tiny_run.model.counts().total + 2)
        assert program["peak_bytes"] > program["state_bytes"]
        per_token = tiny_run.model.training_flops_per_token(16)
        assert program["model_flops"] == pytest.approx(program["bucket"] * 16 * per_token)
    assert found["programs"][1]["peak_bytes"] > found["programs"][0]["peak_bytes"]


@pytest.mark.slow
def test_what_does_not_fit_has_status_1_and_every_number(run_file, monkeypatch, capsys):
    needs = max(
        p["peak_bytes"]
        for p in printed(capsys, "compile", str(run_file), "--on", "cpu:1")["programs"]
    )
    on_small_device(monkeypatch, needs)
    assert main(["compile", str(run_file), "--on", "small:1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pool_bytes"] == needs
    train = found["programs"][0]
    assert train["least_seconds"] == pytest.approx(train["model_flops"] / 1e12)
    on_small_device(monkeypatch, needs - 1)
    assert main(["compile", str(run_file), "--on", "small:1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is False and False in [p["fits"] for p in found["programs"]]


def test_a_config_is_compiled_at_its_base_run(tmp_path, capsys):
    model = {"family": "tests.models.bigram:Bigram", "width": 4}
    setup = {"model": model, "schedule": {"tokens": 10_000, "batch": "4"}, "text": {"seq_len": 32}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"setup": setup}))
    (program,) = printed(capsys, "compile", "--config", str(file), "--on", "cpu:1")["programs"]
    assert program["bucket"] == 4 and program["peak_bytes"] > program["state_bytes"]


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["x.json", "--on", "v9:2x2"], "--on", "v9:2x2"),
        (["x.json", "--on", "h100:9"], "--on", "h100:9"),
        (["x.json", "--on", "cpu:3"], "--on", "cpu:3"),
        (["x.json", "--on", "h100:1"], "--on", "[aot-gpu]"),
        (["x.json", "--on", "v5e:2x4"], "--on", "[aot-tpu]"),
        (["none.json", "--on", "cpu:1"], "none.json", ""),
        (["--on", "cpu:1"], "--config", ""),
        (["--config", "configs/none.py", "--on", "cpu:1"], "none.py", ""),
        (["--config", "configs/es_wsd.py:huge", "--on", "cpu:1"], "es_wsd.py", "huge"),
    ],
)
def test_bad_input_is_one_line(arguments, field, value, capsys, monkeypatch, tmp_path):
    shutil.copytree("configs", tmp_path / "configs")
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    line = refused(capsys, "compile", *arguments)
    assert field in line and value in line


@pytest.mark.parametrize(
    ("execution", "field"),
    [
        ({"attention": "splash"}, "attention"),
        ({"attention": "cudn"}, "cudn"),
        ({"fsdp": 4}, "fsdp"),
    ],
)
def test_an_execution_that_the_machine_cannot_do_is_refused(
    execution, field, tiny_transformer, tmp_path, capsys
):
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"run": to_dict(tiny_transformer), "execution": execution}))
    assert field in refused(capsys, "compile", str(file), "--on", "cpu:2")


def test_a_bucket_that_does_not_divide_is_refused(tiny_run, tmp_path, capsys):
    file = tmp_path / "run.json"
    run = {**to_dict(tiny_run), "schedule": {"batch": "3", "tokens": 4800}}
    file.write_text(json.dumps({"run": run, "execution": {"buckets": [3]}}))
    line = refused(capsys, "compile", str(file), "--on", "cpu:2")
    assert "bucket 3" in line and "2 devices" in line


def test_buckets_that_the_devices_do_not_divide_are_left_out_and_told(
    tiny_run, tmp_path, capsys, monkeypatch
):
    """Those of a config are all compiled, as its runs differ in their batch sizes."""
    model = {"family": "tests.models.bigram:Bigram", "width": 4}
    setup = {"model": model, "schedule": {"tokens": 10_000, "batch": "4"}, "text": {"seq_len": 32}}
    setup["engine"] = {"buckets": [1, 2, 3, 4]}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"setup": setup}))
    found = printed(capsys, "compile", "--config", str(file), "--on", "cpu:2")
    assert [program["bucket"] for program in found["programs"]] == [2, 4]
    assert found["left_out"] == [1, 3]
    assert main(["compile", "--config", str(file), "--on", "cpu:2"]) == 0
    line = "left out: buckets that 2 devices do not divide: 1, 3"
    assert line in capsys.readouterr().out


def test_what_a_compiler_prints_is_shown_only_with_its_error(capfd, monkeypatch, run_file):
    def step_memory(*_):
        os.write(2, b"chatter of XLA\n")
        yield {"bucket": 2, "state_bytes": 1, "peak_bytes": 2, "model_flops": 1}
        if fails:
            raise RuntimeError("broken")

    monkeypatch.setattr("bss.training.memory.step_memory", step_memory)
    fails = False
    assert main(["compile", str(run_file), "--on", "cpu:1"]) == 0
    assert "chatter" not in capfd.readouterr().err
    fails = True
    with pytest.raises(RuntimeError):
        main(["compile", str(run_file), "--on", "cpu:1"])
    assert "chatter of XLA" in capfd.readouterr().err
