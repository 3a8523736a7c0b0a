"""Estimates, options and what every fit is, by hand."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.base import BestBatch, Estimate, Fit, Options, Outlier, interval, too_wide


@dataclass(frozen=True)
class Counted(Fit):
    """A fit of one number."""

    KIND = "counted"
    count: float


def counted(count: Any = 2.0, **how: Any) -> Counted:
    return Counted(count=count, **how)


def test_a_fit_says_how_it_was_made_and_is_read_back():
    entry = counted(version="1").to_dict()
    how = {"level": 0.9, "resamples": 0, "method": "", "warnings": (), "version": "1"}
    assert entry == {"kind": "counted", "schema": 1, "count": 2.0} | how
    assert [*entry] == ["kind", "schema", "count", *how]
    assert counted().law_name == "counted"
    assert Counted.from_dict(entry | {"more": 1}) == counted(version="1")
    del entry["schema"]
    assert Counted.from_dict(entry) == counted(version="1")
    assert np.isnan(Counted.from_dict(entry | {"count": None}).count)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "table"}, "fit: kind 'table', schema 1; expected a fit of kind 'counted', sch"),
        ({"schema": 2}, "fit: kind 'counted', schema 2; expected .*`bss fit counted --json` wri"),
        ({"count": "many"}, "fit: damaged, .*; write it again with `bss fit counted --json`"),
        ({"warnings": 3}, "fit: damaged, "),
    ],
)
def test_a_damaged_fit_is_refused(change, says):
    with pytest.raises(InputError, match=says):
        Counted.from_dict(counted().to_dict() | change)


def test_a_missing_field_is_named():
    entry = counted().to_dict()
    del entry["count"]
    with pytest.raises(InputError, match=r"fit: damaged, .*count"):
        Counted.from_dict(entry)


def test_an_estimate_has_a_note_in_json_only_where_there_is_one():
    plain = {"value": 1.0, "low": None, "high": None, "level": 0.9, "note": ""}
    assert Estimate(1.0) == Estimate(1.0, None, None, 0.9, "")
    assert Estimate(1.0).encoded(plain) == {k: x for k, x in plain.items() if k != "note"}
    assert Estimate(None, note="why").encoded(plain | {"note": "why"}) == plain | {"note": "why"}
    assert Estimate.variant({"value": 1, "status": "end"}) is BestBatch
    assert Estimate.variant({"value": 1}) is Estimate


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [(1, 9.99, False), (1, 10, True), (1, 10.01, True), (None, 5, True), (1, None, True)],
)
def test_an_interval_of_a_factor_of_ten_is_too_wide(low, high, wide):
    assert too_wide(Estimate(1.0, low, high)) == wide


def test_options_have_defaults_and_bounds():
    assert Options() == Options(500, 0.9, 0, 0)
    assert Options(1, 1e-9).resamples == 1 and Options(1, 1 - 1e-9).draws == 0
    with pytest.raises(InputError, match="resamples: 0 given; write 1 or more, such as 500"):
        Options(0)
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match=f"level: {level} given; write a coverage between"):
            Options(1, level)


def test_an_interval_is_of_the_draws_nearest_to_its_tails_and_holds_the_estimate():
    draws = np.arange(101.0)
    assert interval(50, draws) == Estimate(50.0, 5.0, 95.0, 0.9)
    assert interval(50, draws, level=0.5) == Estimate(50.0, 25.0, 75.0, 0.5)
    assert interval(3, draws, level=0.9) == Estimate(3.0, 3.0, 95.0, 0.9)
    assert interval(97, np.append(draws, np.nan)) == Estimate(97.0, 5.0, 97.0, 0.9)
    assert interval(2, np.array([1.0, 2.0, np.inf])) == Estimate(2.0, 1.0, None, 0.9)
    assert interval(2, np.array([-np.inf, 2.0, 3.0])) == Estimate(2.0, None, 3.0, 0.9)


def test_an_outlier_is_named_as_drop_takes_it():
    at = {"run": "b8s1", "batch": 8.0}
    one = Outlier(at, "run=b8s1", -0.1234, 9.6, "log tokens", {"B_opt": 40.0})
    assert str(one) == (
        "run=b8s1,batch=8: 0.12 log tokens below the others, 10 times what is expected; "
        "without it B_opt is 40 (--drop 'run=b8s1')"
    )
    assert str(Outlier({"params": 5e8}, "", 0.2, 7.0, "nats")).startswith(
        "left out: params=500000000: 0.2 nats above the others"
    )
