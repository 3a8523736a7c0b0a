"""Decayed rates: the straight line in intrinsic time, and the powers of Li et al."""

import numpy as np
import pytest

from bss.errors import InputError
from bss.stats import slope
from bss.theory.decay import best_peak, decay_order, decayed_risk
from bss.theory.fsl import drive_of, finite_law, law_curve, limit_law
from bss.theory.regression import Stage, Task

LAW = finite_law(Task(0.5, 2, 32))


def by_steps(rates):
    run = [Stage(float(rate), 1, 1) for rate in rates]
    return law_curve(LAW, drive_of(run), [rates.sum()])[0]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_risk_is_that_of_the_rates_step_by_step(share):
    data, peak = 2000, 0.05
    middle = np.arange(data) + 0.5
    behind = np.clip((middle - (1 - share) * data) / max(share * data, 1), 0, 1)
    assert decayed_risk(LAW, peak, data, share) == pytest.approx(
        by_steps(peak * data**-behind), rel=1e-4
    )


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4.0), (1.0, 2.0)])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_risks_at_the_best_peak_fall_as_in_theory(source, capacity, share):
    budgets = np.geomspace(1e6, 1e9, 3)
    risks = np.array([best_peak(source, capacity, data, share)[1] for data in budgets])
    told = slope(budgets, decay_order(source, capacity, budgets, share)).value
    assert slope(budgets, risks).value == pytest.approx(told, abs=0.01)


def test_a_best_peak_is_no_worse_than_another():
    peak, risk = best_peak(1.0, 2.0, 1e6, 0.2)
    law = limit_law(1.0, 2.0, 1.0, 1e6)
    assert 0 < peak < 1
    for other in (0.5, 0.01):
        assert decayed_risk(law, peak * other, 1e6, 0.2) > risk


@pytest.mark.parametrize(("data", "share", "told"), [(1, 0.2, "data"), (1e4, 1.2, "share")])
def test_settings_out_of_range_are_refused(data, share, told):
    with pytest.raises(InputError, match=told):
        best_peak(0.5, 2.0, data, share)
