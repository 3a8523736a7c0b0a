import numpy as np
import pytest

from bss import values
from bss.errors import InputError
from bss.laws.power import PowerFit, fit_power, predict, unidentified

N = np.array([1e6, 2e6, 4e6, 8e6, 1e6, 2e6, 4e6, 8e6])
D = np.array([2e7, 2e7, 2e7, 2e7, 2e8, 4e8, 1e8, 3e8])


def test_a_planted_law_in_one_variable_is_exact():
    law = fit_power(3.0 * N[:4] ** 0.4, {"params": N[:4]})
    assert law.coefficient.value == pytest.approx(3.0)
    assert law.exponents[0].value == pytest.approx(0.4)
    assert predict(law, {"params": 1e9}).value == pytest.approx(3.0 * 1e9**0.4)


def test_the_unit_moves_the_coefficient_only():
    y = 3.0 * N[:4] ** 0.4
    law = fit_power(y, {"params": N[:4]}, unit=1e6)
    assert law.coefficient.value == pytest.approx(3.0 * 1e6**0.4)
    assert predict(law, {"params": 5e8}).value == pytest.approx(3.0 * 5e8**0.4)


def test_a_planted_joint_law_is_exact():
    law = fit_power(2.0 * N**0.1 * D**0.45, {"params": N, "tokens": D})
    assert [p.value for p in law.exponents] == pytest.approx([0.1, 0.45])
    forecast = predict(law, {"params": 1e8, "tokens": 1e10})
    assert forecast.value == pytest.approx(2.0 * 1e8**0.1 * 1e10**0.45)


@pytest.mark.parametrize("wobble", [0.0, 0.02])
def test_data_in_proportion_to_size_is_refused_with_the_reason(wobble):
    tokens = 20 * N[:4] * (1 + wobble * np.array([1, -1, -1, 1]))
    x = {"params": N[:4], "tokens": tokens}
    assert "cannot be separated" in unidentified(x)
    assert unidentified({"params": N[:4]}) == ""
    with pytest.raises(InputError, match="cannot be separated"):
        fit_power(N[:4] ** 0.5, x)


@pytest.mark.parametrize(
    ("x", "told"),
    [
        ({"params": np.array([1e6])}, "1 points for the 2"),
        ({"params": np.array([1e6, 1.5e6, 1.2e6])}, "less than a factor of 2"),
        ({"params": N[:2], "tokens": D[3:5]}, "2 points for the 3"),
        ({"params": N[:4], "tokens": D[:4]}, "tokens spans less"),
    ],
)
def test_what_cannot_be_told_is_refused(x, told):
    assert told in unidentified(x)


def test_intervals_and_forecasts_cover_at_their_level():
    generator = np.random.default_rng(0)
    x, trials = {"params": N[:5] * np.array([1, 1, 1, 1, 16])}, 400
    covered = np.zeros((trials, 2))
    for trial in range(trials):
        y = np.log(3.0) + 0.4 * np.log(x["params"]) + 0.05 * generator.standard_normal(5)
        law = fit_power(np.exp(y), x)
        new = 3.0 * 1e9**0.4 * np.exp(0.05 * generator.standard_normal())
        for i, (truth, told) in enumerate(
            [(0.4, law.exponents[0]), (new, predict(law, {"params": 1e9}))]
        ):
            assert told.low is not None and told.high is not None
            covered[trial, i] = told.low <= truth <= told.high
    assert covered.mean(axis=0) == pytest.approx([0.95, 0.95], abs=0.03)


def test_known_errors_widen_a_scatter_that_is_small_by_luck():
    y = 3.0 * N[:4] ** 0.4
    law = fit_power(y, {"params": N[:4]}, errors=[0.05] * 4)
    spread = np.sqrt(np.sum((np.log(N[:4]) - np.log(N[:4]).mean()) ** 2))
    p = law.exponents[0]
    assert p.low is not None and p.high is not None
    assert p.high - p.low == pytest.approx(2 * 1.959964 * 0.05 / spread)


def test_two_points_have_no_interval_unless_their_errors_are_known():
    x = {"params": N[:2]}
    bare, known = fit_power([1.0, 2.0], x), fit_power([1.0, 2.0], x, errors=[0.1, 0.1])
    assert (bare.exponents[0].low, bare.scatter) == (None, None)
    assert "no interval" in bare.exponents[0].note
    assert predict(bare, {"params": 1e7}).low is None
    assert known.exponents[0].low is not None


def test_a_forecast_without_a_size_is_refused():
    law = fit_power([1.0, 2.0], {"params": N[:2]})
    with pytest.raises(InputError, match="params"):
        predict(law, {"tokens": 1e9})


@pytest.mark.parametrize("variables", [("params",), ("params", "tokens")])
def test_a_law_is_read_back_from_json_and_an_older_one_has_no_margin(variables):
    columns = {"params": np.array([1.0, 2, 4, 4]), "tokens": np.array([1.0, 5, 2, 9])}
    x = {name: columns[name] for name in variables}
    law = fit_power(np.array([1.0, 2, 3, 5]), x, errors=[0.1] * 4)
    entry = values.to_dict(law)
    again = values.from_dict(PowerFit, entry, strict=False)
    for name, value in vars(law).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    assert ("exponent" in entry) == (len(variables) == 1)
    for name in ("margin", "inverse", "level"):
        del entry[name]
    older = values.from_dict(PowerFit, entry, strict=False)
    assert older.margin is None and older.inverse.size == 0 and older.level == 0.95


@pytest.mark.parametrize(
    ("x", "says"),
    [
        ({"a": [1, 2]}, ""),
        ({"a": [1, 1.999]}, "a spans less than a factor of 2; vary it more"),
        ({"a": [3]}, "1 points for the 2 parameters of a law in a"),
        ({"a": [1, 4], "b": [1, 5]}, "2 points for the 3 parameters of a law in a and b"),
        ({"a": [1, 2, 4], "b": [1, 8, 1]}, ""),
        ({"a": [1, 2, 4, 8], "b": [1, 2, 4, 9]}, "at given b, a spans only a factor of 1.08;"),
        ({"a": [1, 4, 1, 4], "b": [1, 1, 1.9, 1.9]}, "b spans less than a factor of 2"),
    ],
)
def test_a_variable_must_span_a_factor_of_two_by_itself(x, says):
    why = unidentified(x)
    assert says in why and bool(says) == bool(why)


@pytest.mark.parametrize("size", [0.0, -1.0, np.inf, np.nan, None])
def test_a_forecast_wants_positive_sizes(size):
    law = fit_power([1.0, 2], {"a": [1.0, 2]})
    assert predict(law, {"a": 1e-9}).value == pytest.approx(1e-9)
    with pytest.raises(InputError, match=r"a: .* at a forecast; give a positive number"):
        predict(law, {} if size is None else {"a": size})
