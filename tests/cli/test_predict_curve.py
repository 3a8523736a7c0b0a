"""bss predict from a fit of loss curves: a schedule, a table of runs, and what is refused."""

import dataclasses
import json
import math

import pandas as pd
import pytest

from bss.cli import main
from bss.laws.functional.values import schedule_losses
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from tests.cli.called import printed, refused

SCHEDULE = ("--batch", "0:2 1M:8", "--tokens", "2M")
SHAPED = ("--lr", "4e-3", "--warmup", "1%", "--decay", "20%")


@pytest.fixture(scope="module")
def fit(planted_curves):
    """The planted law as a fit with two draws, which differ in the loss that is left."""
    draws = [tuple(planted_curves.law._replace(L_0=1.5 + x)) for x in (-0.01, 0.01)]
    return dataclasses.replace(
        planted_curves.fit, draws=tuple(draws), runs=9, cv_errors={"sgd": 2e-3}
    )


@pytest.fixture
def stored(fit, tmp_path):
    def save(**changes) -> str:
        path = tmp_path / "fit.json"
        path.write_text(json.dumps(dataclasses.replace(fit, **changes).to_dict()))
        return str(path)

    return save


def test_a_schedule_is_predicted_with_an_interval(fit, stored, capsys):
    told = printed(capsys, "predict", "--from", stored(), *SCHEDULE, *SHAPED)
    assert (told["kind"], told["of"], told["outside"]) == ("prediction", "curve", [])
    rate = rates.wsd(4e-3, 2_000_000, 20_000, 400_000)
    schedule = BatchSchedule.parse("0:2 1M:8", total=2_000_000)
    (expected,) = schedule_losses(fit, schedule, 2_000_000, rate)
    loss = told["loss"]
    assert loss["value"] == pytest.approx(expected, rel=1e-9)
    assert loss["low"] < loss["value"] - 0.01 < loss["value"] + 0.01 < loss["high"]
    assert loss["level"] == 0.9
    assert told["steps"] == math.ceil(1e6 / 128) + (2_000_000 - 7813 * 128) // 512


def test_runs_of_a_table_come_back_a_row_each(planted_curves, stored, tmp_path, capsys):
    measured = planted_curves.table(("0:1 50%:8", "4"))
    planned = measured.loc[measured["run"] == "4", ["step", "tokens", "batch", "lr", "seq_len"]]
    table = pd.concat([measured, planned.assign(run="planned")], ignore_index=True)
    table.to_csv(tmp_path / "runs.csv", index=False)
    arguments = ("--from", stored(), "--runs", str(tmp_path / "runs.csv"))
    told = printed(capsys, "predict", *arguments)
    first, second, third = told["runs"]
    assert [row["run"] for row in told["runs"]] == ["0:1 50%:8", "4", "planned"]
    for row in (first, second):
        assert row["measured"] == pytest.approx(row["predicted"], rel=1e-5)
        assert row["error"] == pytest.approx(row["predicted"] - row["measured"])
    assert (third["measured"], third["error"]) == (None, None)
    assert third["predicted"] == second["predicted"]
    assert told["rmse"] < 1e-4
    assert main(["predict", *arguments]) == 0
    assert "planned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ({}, ("--batch", "4", "--tokens", "6.4M"), "is 3.2 times the largest measured"),
        ({}, ("--batch", "64", "--tokens", "2M"), "batch 64 is 4 times the largest measured"),
        ({}, (*SCHEDULE, "--lr", "1e-3"), "lr 0.001 is 0.25 times the smallest measured"),
        ({"since": 2_000_000}, SCHEDULE, "the fit is of losses after 2M tokens"),
        ({"min_lr_over_peak": 1.0}, (*SCHEDULE, "--decay", "20%"), "falls to"),
        ({"status": "unidentified: no run changes"}, SCHEDULE, "no run changes"),
        ({"identified": False}, SCHEDULE, "noise is unidentified"),
    ],
)
def test_what_was_not_tested_is_refused_until_it_is_asked_for(
    stored, capsys, changes, arguments, told
):
    asked = ("--from", stored(**changes), *arguments)
    error = refused(capsys, "predict", *asked)
    assert told in error
    assert "--extrapolate" in error
    assert told in printed(capsys, "predict", *asked, "--extrapolate")["outside"][0]


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ({}, ("--tokens", "2M"), "--batch: missing"),
        ({}, ("--batch", "4"), "--tokens: missing"),
        ({}, ("--batch", "4", "--tokens", "0"), "above 0"),
        ({}, (*SCHEDULE, "--lr", "-1"), "--lr -1"),
        ({}, (*SCHEDULE, "--params", "1M"), "--params: not used with a curve fit"),
        ({}, ("--runs", "none.csv"), "no such file"),
        ({}, ("--runs", "none.csv", "--lr", "1"), "--lr: not used with --runs"),
        ({"rates": (1e-3, 4e-3)}, SCHEDULE, "lr: missing"),
        ({"status": "not converged"}, SCHEDULE, "did not converge"),
    ],
)
def test_bad_questions_are_one_line(stored, capsys, changes, arguments, told):
    assert told in refused(capsys, "predict", "--from", stored(**changes), *arguments)
