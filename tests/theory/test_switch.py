import numpy as np
import pytest

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.stats import Slope, slope
from bss.theory.exponents import exponents, regime
from bss.theory.regression import Stage, Task, final_risk, risk_curve, stages
from bss.theory.switch import (
    best_switch,
    catch_up_gap,
    catch_up_time,
    switch_exponent,
    switch_risks,
    two_stage,
)

HARD = Task(0.3, 4, 128)


@pytest.fixture(scope="module")
def hard():
    return two_stage(HARD, 0.1, 1, 8)


def test_switch_risks_are_those_of_the_stages(hard):
    after = np.array([8, 1600, 2**19, 2**20])
    expected = [
        final_risk(HARD, stages(BatchSchedule.late_switch(1, 8, 2**20 - int(n)), 2**20, 0.1))
        for n in after[:-1]
    ]
    expected.append(final_risk(HARD, [Stage(0.1, 8, 2**17)]))
    np.testing.assert_allclose(switch_risks(hard, 2**20, after), expected, rtol=1e-11)


def test_a_thousand_switch_points_at_once_are_those_asked_alone(hard):
    after = np.geomspace(8, 2**24, 1000)
    risks, some = switch_risks(hard, 2**24, after), [0, 499, 999]
    alone = [switch_risks(hard, 2**24, after[[i]])[0] for i in some]
    np.testing.assert_allclose(risks[some], alone, rtol=1e-10)
    assert np.isfinite(risks).all()


def test_the_best_switch_beats_all_others(hard):
    best = best_switch(hard, 2**18)
    others = switch_risks(hard, 2**18, np.geomspace(8, 2**18, 5000))
    assert 0 < best.risk <= others.min() * (1 + 1e-12)
    assert best.risk > 0.9999 * others.min()
    assert 0.9 < best.fraction < 1


def test_the_switch_exponent_of_a_hard_task(hard):
    switches = [best_switch(hard, 2**k) for k in range(12, 25)]
    found = switch_exponent(switches)
    assert found is not None
    assert found.value == pytest.approx(exponents(0.3, 4).switch, abs=0.02)
    assert found.value == pytest.approx(0.7475, abs=5e-4)
    assert found.low < found.value < found.high
    assert found == switch_exponent(switches[4:])
    assert switch_exponent(switches[:6]) is None


@pytest.mark.parametrize("power", [14, 18, 24])
def test_an_easy_task_switches_at_once(power):
    assert best_switch(two_stage(Task(1, 2, 128), 0.1, 1, 8), 2**power).switch_data == 0


@pytest.mark.parametrize(("capacity", "modes"), [(4, 128), (2, 1024)])
def test_the_gap_closes_with_the_memory_of_the_kernel(capacity, modes):
    run = two_stage(Task(0.3, capacity, modes), 0.1, 1, 8)
    delays = np.geomspace(1e2, 1e4, 40)
    found = slope(delays, catch_up_gap(run, 2**22, delays))
    assert found.value == pytest.approx(-(1 - 1 / capacity), abs=0.03)


def test_the_gap_is_the_difference_of_two_runs(hard):
    switched = [Stage(0.1, 1, 2**14), Stage(0.1, 8, 2**10)]
    constant = [Stage(0.1, 8, 2**14 + 2**10)]
    delays = np.array([0, 1, 50, 2**10])
    gap = risk_curve(HARD, switched, 2**14 + delays) - risk_curve(HARD, constant, 2**14 + delays)
    np.testing.assert_allclose(catch_up_gap(hard, 2**14, delays), gap, rtol=1e-9)


def test_catch_up_takes_a_sublinear_time_on_a_hard_task():
    run = two_stage(Task(0.3, 4, 512), 0.1, 1, 8)
    begin = 2.0 ** np.arange(18, 33, 2)
    times = np.array([catch_up_time(run, 0.1, step) for step in begin])
    assert slope(begin, times).value == pytest.approx(exponents(0.3, 4).catch_up_time, abs=0.05)


def test_exponents_meet_where_the_regimes_meet():
    assert (regime(0.75, 4), regime(0.76, 4)) == ("hard", "easy")
    border, above = exponents(0.75, 4), exponents(0.75 + 1e-9, 4)
    for name in ("loss", "horizon", "growth_fraction", "peak_batch", "switch", "catch_up_time"):
        assert getattr(above, name) == pytest.approx(getattr(border, name), abs=1e-7)


def test_a_planted_slope_is_found():
    x = np.geomspace(1, 1e6, 9)
    assert slope(x, 3 * x**-0.4).value == pytest.approx(-0.4, abs=1e-12)
    noisy = slope(x, x**0.5 * np.exp(np.random.default_rng(0).normal(0, 0.1, 9)))
    assert isinstance(noisy, Slope)
    assert noisy.low < 0.5 < noisy.high


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: two_stage(HARD, 0.1, 8, 8), "batches"),
        (lambda: two_stage(HARD, 0.1, 0, 8), "batches"),
        (lambda: two_stage(HARD, 1.9, 1, 8), "not stable"),
        (lambda: best_switch(two_stage(HARD, 0.1, 1, 8), 8), "data"),
        (lambda: exponents(0, 4), "source"),
        (lambda: regime(1, 1), "capacity"),
    ],
)
def test_bad_input(make, told):
    with pytest.raises(InputError, match=told):
        make()
