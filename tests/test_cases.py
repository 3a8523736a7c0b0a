"""Tables of users for which an answer was once wrong or missing, with the right one.

The logs among such cases are in tests/corpus, ramps and learning rates in tests/cli/test_plan.py,
sweeps and files that cannot be read in tests/cli/test_refusals.py.
"""

import json
from pathlib import Path

import pytest

from bss.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:points. .* fewer than 10 evaluations")
CASES = Path(__file__).parent / "cases"


@pytest.fixture
def answer(capsys):
    """Call a command on a case; return its JSON."""

    def call(command, case, *arguments):
        assert main(["fit", command, str(CASES / case), *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def test_sizes_of_two_scales_have_a_reference_each(answer):
    given = ["--reference-batch", "smallest", "--resamples", "100"]
    fit = answer("critical", "critical_many_scales.csv", *given)
    found = {one["model"]: one["B_crit"]["value"] for one in fit["models"]}
    assert found == {"small": pytest.approx(82, rel=0.01), "large": pytest.approx(5124, rel=0.01)}


def test_a_row_ten_times_too_large_is_named_and_dropped(answer):
    given = ["--reference-batch", "1024", "--resamples", "200"]
    fit = answer("critical", "critical_outlier.csv", *given)
    (outlier,) = fit["outliers"]
    assert outlier["at"]["batch"] == 2048 and "batch=2048" in outlier["drop"]
    without = answer("critical", "critical_outlier.csv", *given, "--drop", "batch=2048")["models"]
    assert without[0]["B_crit"]["value"] == pytest.approx(9017, rel=0.001)
    assert without[0]["cbs"]["value"] == pytest.approx(3032, rel=0.001)


def test_where_two_critical_batches_contradict_the_measured_one_is_given(answer):
    given = ["--reference-batch", "128", "--resamples", "200"]
    (one,) = answer("critical", "critical_two_numbers.csv", *given)["models"]
    assert one["method"] == "measured"
    assert one["cbs"]["value"] == pytest.approx(2444, rel=0.01)


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("unpaired_runs.csv", 19),
        ("unpaired_without_seed.csv", 19),
        ("unpaired_two_groups.csv", 8),
    ],
)
def test_runs_with_seeds_of_their_own_are_not_paired(answer, case, most):
    (at,) = answer("es", case, "--targets", "3.8", "--resamples", "10")["fits"]
    assert at["measured"]["status"] == "at_boundary" and at["measured"]["high"] <= most


def test_a_target_above_the_first_loss_is_read_at_no_row(answer):
    fit = answer("es", "interior.parquet", "--targets", "3.5", "--resamples", "10")
    (at,) = fit["fits"]
    best = at["measured"]
    assert (best["low"] or 0) <= 72.6 <= (best["high"] or 1e9)
    assert any("first loss" in warning for warning in fit["warnings"])


def test_steps_that_contradict_the_tokens_are_refused(capsys):
    assert main(["fit", "loss", str(CASES / "steps_ignored.csv")]) == 2
    error = capsys.readouterr().err
    assert "200M" in error and error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("case", ["near_sizes_crash.csv", "random_search_rates.csv"])
def test_dense_sizes_and_random_rates_are_fitted(answer, case):
    fit = answer("loss", case, "--resamples", "200")
    assert fit["kind"] == "loss" and fit["optima"] and 0 < fit["rmse"] < 1
