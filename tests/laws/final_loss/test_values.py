"""A fitted law of final losses as a value: what it predicts, and what it refuses."""

import dataclasses

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.final_loss.values import TableFit
from bss.laws.fitting.estimate import BestBatch
from tests.laws.final_loss.known import elsewhere, power_of_best, table_fit


@pytest.fixture(scope="module")
def fit():
    return table_fit()


def test_losses_are_by_the_weights_of_their_use(fit):
    params, tokens = np.array([4e8, 3.2e9, 1e8, 8.2e8]), np.array([2e10, 2e10, 2e10, 2e10])
    expected = [
        fit.law(use).losses(p, d, 3e5)
        for use, p, d in zip(("inside", "beyond", "below", "inside"), params, tokens, strict=True)
    ]
    np.testing.assert_allclose(fit.predict(params, tokens, 3e5), expected)
    assert fit.predict(4e8, 2e10, 3e5).shape == ()
    assert fit.predict(params[:, None], 2e10, np.array([1e5, 2e5])).shape == (4, 2)
    assert fit.law_at(1e8, 2e10).weights == (0.6, 0.4)
    assert fit.law_at(4e8, 2e10).weights == fit.law().weights == (0.3, 0.7)


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, np.nan), (1, 1, [1.0, 0.0])])
def test_a_size_that_is_not_positive_is_refused(fit, sizes):
    with pytest.raises(InputError, match=r"(params|tokens): .* at a prediction; give positive num"):
        fit.predict(*sizes)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"params": 8e8, "tokens": 3.2e11, "batch_tokens": 3e4}, ""),
        ({"params": 8.01e8}, "params: 8.01e+08 is 1 times outside the 2e+08 to 8e+08 measured, an"),
        ({"params": 1e8}, "params: 1e+08 is 2 times outside .* tested to 1 times the largest; ask"),
        ({"tokens": 3.3e11}, "tokens: 3.3e+11 is 2.06 times .* tested to 2 times"),
        ({"tokens": 3e9}, "tokens: 3e+09 is 1.33 times outside"),
        ({"batch_tokens": 4.1e6}, "batch_tokens: 4.1e+06 is 1.02 times outside"),
    ],
)
def test_sizes_beyond_what_was_tested_are_refused(fit, sizes, says):
    if not says:
        fit.check_tested(sizes)
        return
    with pytest.raises(InputError, match=says.replace("+", "[+]")):
        fit.check_tested(sizes)


def test_a_best_batch_is_that_of_its_own_runs_within_three_percent(fit):
    assert fit.best_batch(4e8, 8e9) == fit.optima[0].batch
    assert fit.best_batch(4e8 * 1.02, 8e9 * 1.02) == fit.optima[0].batch
    other = fit.best_batch(4e8 * 1.03, 8e9 * 1.02)
    assert other.source == "power law of the vertices"
    assert other == fit.best.at(fit.law(), 4e8 * 1.03, 8e9 * 1.02, 0.9, 512.0)


def test_a_best_batch_is_told_nowhere_where_no_runs_tell_theirs(fit):
    none = BestBatch(None, status="flat", note="unidentified: flat")
    optima = tuple(dataclasses.replace(at, batch=none) for at in fit.optima)
    results = table_fit(optima=optima).best_batch(6e8, 9e10)
    assert (results.value, results.low, results.high, results.status) == (None, None, None, "flat")
    assert results.note == "unidentified: so is that of every (params, tokens) measured"
    one = table_fit(optima=(optima[0], fit.optima[1])).best_batch(6e8, 9e10)
    assert one.value is not None


def test_an_interval_too_wide_to_use_is_no_value():
    wide = power_of_best()
    wide = dataclasses.replace(wide, draws=wide.draws * [1, 1, 1, 8])
    results = table_fit(best=elsewhere(power=wide)).best_batch(6e8, 9e10)
    assert results.value is None and results.status == "too wide"
    assert results.low is not None and results.high is not None


def test_batches_are_in_sequences_where_their_length_is_known(fit):
    assert fit.batches == (3e4 / 512, 4e6 / 512)
    assert table_fit(seq_len=None).batches == (3e4, 4e6)


def test_it_is_read_back_with_its_points(fit):
    entry = fit.to_dict()
    assert entry["points"] == 9 and len(entry["design"]["loss"]) == 9
    assert entry["kind"] == "table" and entry["schema"] == 3
    assert set(entry) >= {"best_batch", "optima", "method", "cell_error"}
    again = TableFit.from_dict(entry)
    for name, column in vars(fit.points).items():
        np.testing.assert_array_equal(getattr(again.points, name), column)
    assert again.predict(3e8, 3e10, 4e5) == pytest.approx(fit.predict(3e8, 3e10, 4e5))
