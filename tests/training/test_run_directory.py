"""The run directory: its lock, its config, its curve."""

import json
import random
import warnings

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.run_directory import (
    RunStatus,
    Speed,
    open_run,
    read_config,
    read_curve,
    read_executions,
    read_status,
    run_path,
)

LOSSES = {"loss": 1.4, "eval_loss": 1.5, "eval_loss_avg_4%": 1.3, "test_loss": None}
FINISHED = RunStatus("finished", 8, 2, LOSSES, throughput=(Speed(2, 8, 1e3, 0.25),))


def test_one_writer_at_a_time(tmp_path):
    with open_run(tmp_path / "run"):
        again = open_run(tmp_path / "run")
        with pytest.raises(InputError, match="another process"):
            again.__enter__()
    with open_run(tmp_path / "run"):
        pass


def test_a_directory_of_another_run_is_refused(tmp_path, tiny_run):
    other = overlay(tiny_run, {"seed": 1})
    with open_run(tmp_path) as directory:
        directory.check_config(tiny_run)
        directory.check_config(overlay(tiny_run, {"schedule.tokens": 9000}))
        with pytest.raises(InputError, match=f"holds run {tiny_run.id}, not {other.id}"):
            directory.check_config(other)
    assert json.loads((tmp_path / "config.json").read_text())["id"] == tiny_run.id


def test_a_torn_last_line_is_dropped(tmp_path):
    with open_run(tmp_path) as directory:
        for tokens in (10, 20, 30):
            directory.add_row({"tokens": tokens, "loss": 1 / 3})
        with open(tmp_path / "curve.jsonl", "a") as file:
            file.write('{"tokens": 40, "lo')
        assert [row["tokens"] for row in read_curve(tmp_path)] == [10, 20, 30]
        directory.truncate_curve(20, read_curve(tmp_path)[:2])
        assert [row["tokens"] for row in read_curve(tmp_path)] == [10, 20]
        assert read_status(tmp_path) == RunStatus("running", 20)
        directory.add_row({"tokens": 25, "loss": 2.0})
    assert read_curve(tmp_path) == [
        {"tokens": 10, "loss": 1 / 3},
        {"tokens": 20, "loss": 1 / 3},
        {"tokens": 25, "loss": 2.0},
    ]


def test_status_and_executions(tmp_path):
    assert read_status(tmp_path) == RunStatus("to do")
    with open_run(tmp_path) as directory:
        assert directory.add_execution({"cores": 1}) is None
        assert directory.add_execution({"cores": 2}) == {"cores": 1}
        directory.write_status(FINISHED)
    assert read_status(tmp_path) == FINISHED
    held = json.loads((tmp_path / "status.json").read_text())
    assert held["losses"] == LOSSES
    assert held["throughput"][0]["mfu"] == 0.25
    assert not list(tmp_path.glob(".*.json*"))


ROWS = [{"tokens": tokens, "loss": 1 / tokens} for tokens in (10, 20, 30)]


@pytest.fixture
def ended(tmp_path):
    """A run directory of three rows and two starts that has finished."""
    with open_run(tmp_path) as directory:
        directory.truncate_curve(0, [])
        directory.add_execution({"cores": 1})
        directory.add_execution({"cores": 2})
        for row in ROWS:
            directory.add_row(row)
        directory.write_status(FINISHED)
    assert read_status(tmp_path) == FINISHED
    return tmp_path


def damages(whole: bytes):
    """What may become of a file: None where it is deleted."""
    draw, middle = random.Random(len(whole)), len(whole) // 2
    flips = draw.sample(range(len(whole)), 40)
    yield from (whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :] for at in flips)
    yield from (whole[:middle], b"", draw.randbytes(64), whole[:middle] + draw.randbytes(64), None)


def test_a_curve_that_changes_after_its_run_has_ended_is_reported_by_the_status(ended):
    file = ended / "curve.jsonl"
    for damaged in damages(file.read_bytes()):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        status = read_status(ended)
        assert (status.status, status.tokens) == ("damaged", 8)
        assert status.message == "curve.jsonl changed since the run was finished; train it again"
        assert not status.finished


def test_a_curve_is_written_again_from_the_checkpoint(ended):
    file = ended / "curve.jsonl"
    whole = file.read_bytes()
    for damaged in damages(whole):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with open_run(ended) as directory:
            with warnings.catch_warnings(record=True, action="always") as reported:
                directory.truncate_curve(30, ROWS)
            directory.write_status(FINISHED)
        assert read_curve(ended) == ROWS
        assert read_status(ended) == FINISHED
        if damaged is not None and file.read_bytes() != damaged:
            assert [one for one in reported if "curve.jsonl: " in str(one.message)]
        file.write_bytes(whole)
    assert len([*(ended / "damaged").glob("curve.jsonl-*")]) > 20


def test_a_status_that_is_damaged_is_told_and_counts_as_none(ended):
    file = ended / "status.json"
    whole, told = file.read_bytes(), 0
    for damaged in damages(whole):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with warnings.catch_warnings(record=True, action="always") as said:
            status = read_status(ended)
        told += len(said)
        assert status == (RunStatus() if said or damaged is None else FINISHED)
        assert all("status.json: " in str(one.message) for one in said)
    assert told > 40


@pytest.mark.parametrize("text", ["[{", "{}", "[1]", "\xff"])
def test_starts_that_cannot_be_read_are_reported(ended, text):
    (ended / "execution.json").write_text(text, encoding="latin-1")
    with pytest.warns(RuntimeWarning, match=r"execution\.json: cannot be read"):
        assert read_executions(ended) == []


def test_a_damaged_config_is_written_again_in_the_directory_of_its_run(tmp_path, tiny_transformer):
    path = tmp_path / tiny_transformer.id
    for damage in (lambda text: text[:50], lambda text: text.replace('"num_layers": 1', "")):
        with open_run(path) as directory:
            directory.check_config(tiny_transformer)
            whole = (path / "config.json").read_text()
            (path / "config.json").write_text(damage(whole))
            with pytest.raises(InputError, match=r"config\.json: "):
                read_config(path)
            with pytest.warns(RuntimeWarning, match=r"config\.json: .* written again"):
                directory.check_config(tiny_transformer)
        assert (path / "config.json").read_text() == whole
        assert read_config(path) == tiny_transformer


@pytest.mark.parametrize(
    ("plain", "unused"),
    [
        ({"schedule.rate": "linear"}, {"schedule.decay": 512, "schedule.floor": 0.1}),
        ({"schedule.rate": "cosine"}, {"schedule.decay": 512, "schedule.shape": "1-sqrt"}),
        ({"schedule.rate": "constant"}, {"schedule.decay": 512}),
        ({}, {"schedule.shape": "cosine", "schedule.floor": 0.5}),
        ({}, {"schedule.reference_batch": 16}),
        ({"schedule.lr_coupling": "sqrt"}, {"schedule.reference_batch": 2}),
        ({"optimizer.weight_decay": 0.0}, {"schedule.weight_decay_coupling": "per_token"}),
        ({"schedule.batch": "4"}, {"schedule.lr_coupling": "sqrt"}),
        ({"optimizer.name": "sgd"}, {"optimizer.beta2": 0.5, "optimizer.eps": 1e-3}),
        ({"optimizer.beta2_half_life": 4096}, {"optimizer.beta2": 0.5}),
    ],
)
def test_settings_without_effect_rename_no_run(tiny_run, tmp_path, plain, unused):
    run, spelled = overlay(tiny_run, plain), overlay(tiny_run, {**plain, **unused})
    assert spelled.id == run.id
    assert run_path(tmp_path, spelled) == tmp_path / run.id


def test_settings_with_effect_have_ids_of_their_own(tiny_run):
    for changes in (
        {"schedule.decay": 512},
        {"schedule.decay": 512, "schedule.floor": 0.1},
        {"schedule.decay": 512, "schedule.shape": "1-sqrt"},
        {"schedule.rate": "cosine", "schedule.floor": 0.1},
    ):
        run = overlay(tiny_run, changes)
        assert not run.schedule.unused
        assert run.id != tiny_run.id
