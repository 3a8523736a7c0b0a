"""--step-time: the soonest and the cheapest batch size, from every command that takes it."""

import contextlib
import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from tests.cli.called import printed

POINTS = "results/published/mlperf_rcp.csv"
EIGHT = ["--keep", "model=llama31_8b", "--resamples", "50"]
LINEAR = "0.9 + 0.05*B"


def rows(payload):
    return {row["criterion"]: row for row in payload["equal_time"]}


@pytest.fixture(scope="module")
def fit_file(tmp_path_factory):
    """A hyperbola of the 8B points, in JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["fit", "es", POINTS, *EIGHT, "--law", "hyperbola", "--json"]) == 0
    path = tmp_path_factory.mktemp("fit") / "fit.json"
    path.write_text(out.getvalue())
    return path


@pytest.mark.slow
def test_a_hyperbola_of_points_has_the_closed_form(capsys, fit_file):
    arguments = ["fit", "es", POINTS, *EIGHT, "--law", "hyperbola", "--step-time", LINEAR]
    found = rows(printed(capsys, *arguments))
    at = json.loads(fit_file.read_text())["fits"][0]
    critical = at["E_min"] / 8192 / at["S_min"]
    assert found["time"]["batch"] == pytest.approx(math.sqrt(critical * 0.9 / 0.05), rel=0.01)
    assert found["tokens"]["batch"] == 16 and found["tokens"]["at_boundary"]
    assert found["time"]["low"] < found["time"]["batch"] < found["time"]["high"]


def test_critical_batches_have_the_closed_form_and_its_interval(capsys):
    arguments = ["fit", "critical", POINTS, *EIGHT, "--reference-batch", "smallest"]
    payload = printed(capsys, *arguments, "--step-time", LINEAR)
    bend, found = payload["models"][0]["B_crit"], rows(payload)["time"]
    for end, name in (("value", "batch"), ("low", "low"), ("high", "high")):
        assert found[name] == pytest.approx(math.sqrt(bend[end] * 18), rel=0.01)


def test_devices_that_grow_with_the_batch_make_small_ones_cheap(capsys, tmp_path):
    times = pd.DataFrame({"batch": [16, 32, 64, 128], "seconds": [1.7, 1.8, 2.0, 2.4]})
    times.assign(devices=[8, 16, 32, 64]).to_csv(tmp_path / "times.csv", index=False)
    arguments = ["fit", "es", POINTS, *EIGHT, "--step-time", str(tmp_path / "times.csv")]
    found = rows(printed(capsys, *arguments, "--price", "2"))
    assert found["time"]["batch"] > 64 and found["cost"]["batch"] < 32
    assert found["cost"]["cost"] == pytest.approx(found["cost"]["hours"] * 16, rel=0.5)


def test_times_of_a_run_table_are_read(capsys, tmp_path):
    batch = np.repeat([4, 8, 16, 32, 64], 12)
    step = np.tile(np.arange(1, 13) * 50, 5)
    tokens = batch * step * 64
    runs = pd.DataFrame({"run": [f"b{b}" for b in batch], "batch": batch, "seq_len": 64})
    loss = 2 + 40 * (tokens / (1 + batch / 12)) ** -0.3
    runs = runs.assign(step=step, loss=loss, seconds=step * (0.1 + 0.01 * batch))
    runs.to_csv(tmp_path / "runs.csv", index=False)
    target = f"{loss.reshape(5, 12)[:, -3].max():.3f}"
    given = ["fit", "es", str(tmp_path / "runs.csv"), "--targets", target, "--resamples", "10"]
    by_runs = rows(printed(capsys, *given, "--step-time", "runs"))
    by_formula = rows(printed(capsys, *given, "--step-time", "0.1 + 0.01*B"))
    assert by_runs["time"]["batch"] == pytest.approx(by_formula["time"]["batch"], rel=0.02)


def test_advice_at_equal_loss_takes_a_larger_batch_with_overhead(capsys):
    plan = ["advise", "--params", "350M", "--tokens", "30B", "--seq-len", "2048"]
    own, slow = (
        rows(printed(capsys, *plan, "--step-time", f"{overhead} + 0.004*B"))
        for overhead in (0.0001, 0.8)
    )
    assert own["time"]["batch"] == pytest.approx(own["tokens"]["batch"], rel=0.05)
    assert slow["time"]["batch"] > 1.2 * slow["tokens"]["batch"]
    assert slow["time"]["low"] < slow["time"]["batch"] < slow["time"]["high"]
    assert slow["time"]["hours"] < slow["tokens"]["hours"]


def test_advice_of_a_fit_is_at_its_target(capsys, fit_file):
    plan = ["advise", "--from", str(fit_file), "--params", "8B", "--tokens", "1.4B"]
    found = rows(printed(capsys, *plan, "--seq-len", "8192", "--step-time", LINEAR))
    assert 30 < found["time"]["batch"] < 50


def test_a_schedule_may_minimize_time(capsys, fit_file):
    given = ["schedule", "--from", str(fit_file), "--tokens", "1.4B", "--step-time", LINEAR]
    found = {
        name: printed(capsys, *given, "--minimize", name)["plan"]["segments"][-1]["batch"]
        for name in ("tokens", "time")
    }
    assert found["tokens"] == 16 and 30 < found["time"] < 50


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--step-time", "1ms + 0.01*B"], "unit"),
        (["--step-time", "1 - 0.01*B"], "step_time"),
        (["--step-time", "none.csv"], "none.csv"),
        (["--step-time", "runs"], "no column"),
        (["--price", "2"], "--step-time"),
        (["--step-time", LINEAR, "--devices", "0"], "--devices"),
    ],
)
def test_bad_times_are_one_line(capsys, arguments, part):
    assert main(["fit", "es", POINTS, *EIGHT, *arguments]) == 2
    error = capsys.readouterr().err
    assert part in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("batch,seconds\n16,2\n32,1\n", "do not fall"),
        ("batch,seconds\n16,1\n32,\n", "positive"),
        ("batch,seconds\n16,1s\n32,1100ms\n", "positive"),
        ("batch,seconds\n512,1\n1024,2\n", "time at least two"),
    ],
)
def test_bad_tables_of_times_are_one_line(capsys, tmp_path, text, part):
    (tmp_path / "times.csv").write_text(text)
    given = ["--step-time", str(tmp_path / "times.csv")]
    assert main(["fit", "es", POINTS, *EIGHT, *given]) == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--minimize", "time"],
        ["--step-time", LINEAR],
        ["--minimize", "time", "--step-time", LINEAR, "--policy", "theory"],
    ],
)
def test_minimize_and_step_time_go_together(capsys, fit_file, arguments):
    assert main(["schedule", "--from", str(fit_file), "--tokens", "1B", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
