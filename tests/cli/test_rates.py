"""Learning rates on the command line: predictions at each run's own, a coupling from a fit."""

import json
from pathlib import Path

import pytest

from tests.cli.called import printed, refused
from tests.fits import with_few_rows

PUBLISHED = Path(__file__).parents[2] / "bss/laws/published/steplaw_rates.json"
ONE_RATE = "bss/laws/published/steplaw_dense.json"
HEAD = "run,params,tokens,batch,seq_len,peak_lr"


@pytest.fixture(scope="module")
def rates(tmp_path_factory):
    """The published fit with every eighth of its rows."""
    entry = with_few_rows(json.loads(PUBLISHED.read_text()))
    file = tmp_path_factory.mktemp("rates") / "fit.json"
    file.write_text(json.dumps(entry))
    return str(file)


@pytest.fixture
def table(rates, tmp_path):
    """A table of runs, from its lines."""

    def written(*lines):
        file = tmp_path / "runs.csv"
        file.write_text("\n".join((HEAD, *lines)) + "\n")
        return ("--from", rates, "--runs", str(file), "--columns", "lr=peak_lr")

    return written


def test_every_run_is_predicted_at_its_own_rate(table, capsys):
    runs = table("a,429260800,20B,256,2048,2e-3", "b,429260800,20B,256,2048,4e-4")
    told = printed(capsys, "predict", *runs)
    a, b = told["runs"]
    assert (a["run"], a["lr"], a["outside"]) == ("a", 2e-3, "")
    # Measured between these rates at batch 256: 2.338 to 2.352 nats; a fifth of the rate costs.
    assert a["low"] < 2.339 < a["high"]
    assert a["high"] - a["low"] < 0.03
    assert b["predicted"] > a["predicted"] + 0.01


def test_what_is_outside_is_named_or_refused(table, capsys):
    runs = table("far,429260800,20B,256,2048,5e-2", "in,429260800,20B,256,2048,2e-3")
    assert "lr: 0.05 is" in refused(capsys, "predict", *runs)
    told = printed(capsys, "predict", *runs, "--extrapolate")
    far, inside = told["runs"]
    assert far["outside"].startswith("lr: 0.05 is") and inside["outside"] == ""


def test_errors_are_told_beside_losses(rates, tmp_path, capsys):
    file = tmp_path / "runs.csv"
    file.write_text(
        f"{HEAD},loss\na,429260800,20B,256,2048,2e-3,2.341\nb,429260800,20B,64,2048,2e-3,2.37\n"
    )
    told = printed(
        capsys, "predict", "--from", rates, "--runs", str(file), "--columns", "lr=peak_lr"
    )
    errors = [one["error"] for one in told["runs"]]
    assert told["rmse"] == pytest.approx((sum(x**2 for x in errors) / 2) ** 0.5)
    assert errors[0] == pytest.approx(told["runs"][0]["predicted"] - 2.341)


def test_one_run_is_told_its_best_rate_and_its_best_batch(rates, capsys):
    asked = ("--from", rates, "--params", "430M", "--tokens", "20B", "--batch", "256")
    free = printed(capsys, "predict", *asked)
    slow = printed(capsys, "predict", *asked, "--lr", "5e-4")
    assert free["best_lr"]["low"] < free["best_lr"]["value"] < free["best_lr"]["high"]
    assert slow["excess_loss"] > free["excess_loss"] and slow["lr"] == 5e-4


def test_what_makes_no_sense_is_one_line(rates, capsys):
    at = ("--params", "430M", "--tokens", "20B", "--batch", "256", "--lr", "1e-3")
    told = refused(capsys, "predict", "--from", ONE_RATE, *at, "--seq-len", "2048")
    assert "lr: " in told
    assert "--columns" in refused(capsys, "predict", "--from", rates, "--columns", "lr=x", *at)


def test_a_plan_takes_the_power_of_a_fit(capsys):
    plan = (
        "plan",
        "--tokens",
        "100M",
        "--seq-len",
        "1024",
        "--batch",
        "0:64 50M:128",
        "--lr",
        "1e-3",
    )
    power = json.loads(PUBLISHED.read_text())["best_rates"]["exponents"]["B"]["value"]
    told = printed(capsys, *plan, "--lr-coupling", f"{power:.4g}")
    first, second = (segment["lr_start"] for segment in told["segments"])
    assert second / first == pytest.approx(2**power, rel=1e-3)
