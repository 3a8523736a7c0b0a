"""bss register: what is written of a schedule and of a table of runs, and refused."""

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

from bss.laws import CurveFit
from bss.predictions.registration import digest, read_registration
from tests.cli.called import printed, refused

SCHEDULE = ("--batch", "0:2 1M:8", "--tokens", "2M", "--warmup", "20K")


@pytest.fixture
def arguments(planted_curves, tmp_path):
    """`bss register` from the planted law, and where it writes."""
    fit = dataclasses.replace(planted_curves.fit, runs=9, left_out_rmse={"sgd": 2e-3})
    (tmp_path / "fit.json").write_text(json.dumps(fit.to_dict()))
    return (
        *("register", "first", "--from", str(tmp_path / "fit.json")),
        *("--predictions", str(tmp_path / "written")),
    )


@pytest.fixture
def written(tmp_path):
    return lambda: read_registration(tmp_path / "written" / "first.json")


def test_a_schedule_is_registered_with_all_that_decides_its_score(arguments, written, capsys):
    options = ("--ids", "a,b", "--baseline", "equal steps=1.93", "--exclude", "warm-up", "--seed")
    told = printed(capsys, *arguments, *SCHEDULE, *options, "5", "--metric", "test_loss")
    kept = written()
    (one,) = kept.predictions
    assert told["registration"].items() >= {"schedules": 1, "runs": 2}.items()
    assert (one.runs, one.ending, one.peak_lr) == (("a", "b"), "constant", 4e-3)
    assert (one.tokens, one.loss.value) == (told["tokens"], told["loss"]["value"])
    assert (one.loss.low, one.loss.high, one.loss.level) == tuple(
        told["loss"][name] for name in ("low", "high", "level")
    )
    assert str(one.schedule.batch) == "0:2 1M:8"
    assert (one.schedule.warmup, one.schedule.decay) == (20_000, 0)
    assert one.baselines == {"equal steps": 1.93}
    assert (kept.metric, kept.exclusions, kept.seed) == ("test_loss", ("warm-up",), 5)
    assert CurveFit.from_dict(dict(kept.fit)).law.L_0 == 1.5
    assert kept.date
    assert "and the first counts" in refused(capsys, *arguments, *SCHEDULE, "--ids", "c")


@pytest.mark.parametrize(
    ("options", "ending"),
    [(("--decay", "20%"), "wsd"), (("--decay", "99%", "--shape", "cosine"), "cosine")],
)
def test_the_ending_of_a_schedule_is_told(arguments, written, capsys, options, ending):
    printed(capsys, *arguments, *SCHEDULE, "--ids", "a", *options)
    assert written().predictions[0].ending == ending


@pytest.fixture
def table(planted_curves, tmp_path):
    """Two schedules of two seeds each, without losses, and what a baseline says of them."""
    measured = planted_curves.table(("0:1 50%:8", "4"))
    copies = []
    for seed in (0, 1):
        rows = measured.drop(columns="loss")
        copies.append(rows.assign(run=rows["run"] + f" {seed}", pilot=rows["step"] / 1e4 + 1))
    path = tmp_path / "runs.csv"

    def save(**columns):
        pd.concat(copies).assign(**columns).to_csv(path, index=False)
        return path

    return save


def test_runs_of_one_schedule_are_one_prediction(arguments, table, written, capsys):
    options = ("--baseline", "pilot=pilot")
    told = printed(capsys, *arguments, "--runs", str(table(ending="constant")), *options)
    growing, constant = written().predictions
    assert told["registration"].items() >= {"schedules": 2, "runs": 4}.items()
    assert told["registration"]["sha256"] == digest(Path(told["registration"]["file"]))
    assert growing.runs == ("0:1 50%:8 0", "0:1 50%:8 1")
    assert constant.runs == ("4 0", "4 1")
    assert constant.tokens == told["runs"][1]["tokens"]
    assert constant.loss.value == told["runs"][1]["loss"]["value"]
    assert constant.baselines["pilot"] > 1
    assert (constant.ending, constant.peak_lr) == ("constant", 4e-3)


def test_schedules_are_called_as_the_table_calls_them(arguments, table, written, capsys):
    runs = table(schedule=lambda rows: rows["run"].str.slice(0, -2).replace("4", "stays"))
    printed(capsys, *arguments, "--runs", str(runs))
    assert [one.name for one in written().predictions] == ["0:1 50%:8", "stays"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (SCHEDULE, "--ids: missing"),
        ((*SCHEDULE, "--ids", "a", "--baseline", "equal steps"), "expected NAME=LOSS"),
        ((*SCHEDULE, "--ids", "a", "--baseline", "x=low"), "--baseline x: low is no loss"),
        ((*SCHEDULE, "--ids", "a", "--baseline", "x=-1"), "--baseline x: -1 is no loss"),
        ((*SCHEDULE, "--ids", "a,a"), "run a: is predicted twice"),
    ],
)
def test_what_cannot_be_registered_is_one_line(arguments, tmp_path, capsys, options, told):
    assert told in refused(capsys, *arguments, *options)
    assert not (tmp_path / "written").exists()


def test_a_table_that_cannot_be_registered_is_one_line(arguments, table, capsys):
    runs = ("--runs", str(table()))
    assert "no column flat" in refused(capsys, *arguments, *runs, "--baseline", "x=flat")
    assert "--ids: the runs of --runs have names" in refused(
        capsys, *arguments, *runs, "--ids", "a"
    )
    runs = ("--runs", str(table(eval_loss=2.0)))
    assert "has a loss; what is registered has none yet" in refused(capsys, *arguments, *runs)


def test_other_fits_are_not_registered(arguments, tmp_path, capsys):
    (tmp_path / "fit.json").write_text('{"kind": "es"}')
    assert "`bss register` reads fits of kind 'curve'" in refused(capsys, *arguments, *SCHEDULE)
