"""What the rates of a run table mean for a law of its points."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.conditions import near_as_one
from bss.points.curve import peak_rates, points
from bss.points.measuring import one_rate, rate_warnings, runs_at_peak_lr
from bss.tables import check_runs


def table(rates, shape=lambda part: np.ones_like(part)):
    """Runs at batches 2, 4, 8, ... of these peaks, whose rate follows a shape of the steps."""
    part = np.linspace(0.02, 1, 60)
    frames = [
        pd.DataFrame({"run": f"b{2**i}", "batch": 2**i, "seq_len": 8, "lr": rate * shape(part)})
        .assign(step=np.rint(1000 * part).astype(int), loss=3 - part)
        for i, rate in enumerate(rates, 1)
    ]  # fmt: skip
    return check_runs(pd.concat(frames, ignore_index=True))


def said(runs, targets=(2.7, 2.4)):
    measured = points(runs, targets)
    return rate_warnings(runs, measured), one_rate(measured)


def test_one_constant_rate_is_known_and_needs_no_word():
    assert said(table([4e-3] * 3)) == ([], 4e-3)
    assert said(table([4e-3, 4.001e-3])) == ([], 4e-3)
    assert said(table([4e-3] * 3).drop(columns="lr")) == ([], None)


def test_warm_up_and_what_follows_the_last_target_are_no_change():
    warmed = table([4e-3] * 3, lambda part: np.minimum(part / 0.1, 1))
    assert said(warmed) == ([], 4e-3)
    decayed = table([4e-3] * 3, lambda part: np.where(part > 0.7, 0.1, 1.0))
    assert said(decayed) == ([], 4e-3)


@pytest.mark.parametrize(
    "shape",
    [lambda part: 0.5 * (1 + np.cos(np.pi * part)), lambda part: np.where(part > 0.5, 0.1, 1.0)],
)
def test_a_rate_that_falls_before_a_target_is_said(shape):
    ((warning,), rate) = said(table([4e-3] * 3, shape))
    assert "within 3 of 3 runs" in warning and "run b2, " in warning
    assert rate == pytest.approx(4e-3, rel=1e-2)


def test_rates_that_differ_between_batches_are_said():
    ((warning,), rate) = said(table([1e-3, 2e-3, 4e-3]))
    assert "(1e-3 at batch 2 to 4e-3 at batch 8)" in warning and rate is None


def test_several_rates_at_every_batch_are_said():
    low, high = table([1e-3] * 3), table([4e-3] * 3)
    both = pd.concat([low, high.assign(run=high["run"] + "h")], ignore_index=True)
    (warning,) = said(both)[0]
    assert "(1e-3 to 4e-3)" in warning


def test_a_peak_is_the_highest_known_of_the_first_column_that_tells_one():
    run = pd.DataFrame({"run": "a", "peak_lr": [np.nan, np.nan], "lr": [1e-3, np.nan]})
    assert peak_rates(run)["a"] == 1e-3
    assert peak_rates(run.assign(peak_lr=["2e-3", ""]))["a"] == 2e-3
    assert np.isnan(peak_rates(run.drop(columns="lr"))["a"])


def test_rates_within_a_percent_are_one():
    assert near_as_one([1e-3, 0.9901e-3, 0.9899e-3, np.nan]) == {
        1e-3: 1e-3, 0.9901e-3: 1e-3, 0.9899e-3: 0.9899e-3
    }  # fmt: skip
    points = pd.DataFrame({"peak_lr": [1e-3, 0.9901e-3]})
    assert one_rate(points) == 1e-3
    assert one_rate(points.assign(peak_lr=[1e-3, 0.9899e-3])) is None
    assert one_rate(points.assign(peak_lr=[1e-3, np.nan])) is None
    assert one_rate(points.iloc[:0]) is None


def test_runs_of_one_rate_are_taken_and_another_is_refused():
    runs = table([1e-3, 2e-3, 1.009e-3])
    assert set(runs_at_peak_lr(runs, 1e-3)["run"]) == {"b2", "b8"}
    assert set(runs_at_peak_lr(runs, 2.02e-3)["run"]) == {"b4"}
    with pytest.raises(InputError, match=r"--peak-lr 0.003: .* are 1.009e-3, 2e-3$"):
        runs_at_peak_lr(runs, 3e-3)
    with pytest.raises(InputError, match="add a column peak_lr or lr"):
        runs_at_peak_lr(runs.drop(columns="lr"), 3e-3)


def test_a_change_between_the_first_target_and_the_last_is_said_with_its_ends():
    halved = table([4e-3] * 2, lambda part: np.where(part > 0.5, 0.5, 1.0))
    ((warning,), _) = said(halved)
    assert "within 2 of 2 runs" in warning and "(the first: run b2, 4e-3 to 2e-3)" in warning
    assert said(halved, targets=(2.7, 2.51)) == ([], 4e-3)
    late = table([4e-3] * 2, lambda part: np.where(part < 0.35, 0.5, 1.0))
    assert len(said(late, targets=(2.8, 2.4))[0]) == 1  # met before the peak rate is
    assert said(late, targets=(2.6, 2.4))[0] == []


def test_an_envelope_tells_of_rates_between_batches_itself():
    runs = table([1e-3, 2e-3])
    measured = points(runs, (2.7, 2.4))
    assert len(rate_warnings(runs, measured)) == 1
    assert rate_warnings(runs, measured.assign(trials=2)) == []


def test_a_batch_with_more_rates_differs_from_the_others():
    one, other = table([1e-3, 1e-3]), table([4e-3]).assign(run="more")
    ((warning,), rate) = said(pd.concat([one, other], ignore_index=True))
    assert "(1e-3 at batch 2)" in warning and rate is None


def test_peaks_of_a_table_are_those_of_its_runs():
    runs = pd.DataFrame(
        {
            "run": [*"bbbaaaccdd"],
            "peak_lr": [np.nan, 0.2, "x", np.nan, np.nan, np.nan, np.inf, 3.0, np.nan, np.nan],
            "lr": [1.0, 2.0, 3.0, 0.1, "0.4", 0.3, 1.0, 1.0, np.nan, np.inf],
        }
    )
    expected = pd.Series({"b": 0.2, "a": 0.4, "c": 3.0, "d": np.nan})
    pd.testing.assert_series_equal(peak_rates(runs), expected)
