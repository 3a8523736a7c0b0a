import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from bss.errors import InputError
from bss.schedules.plan import resolve
from bss.stats import slope
from bss.theory.exponents import exponents
from bss.theory.optimal import (
    Budget,
    batch_schedule,
    constant_optimum,
    data_left,
    optimum,
    schedule_risk,
    time_left,
)

BUDGETS = np.geomspace(1e10, 1e14, 9)


def stretches(budget, schedule):
    plan = resolve(schedule, int(budget.data), seq_len=1)
    return [(s.end_tokens - s.start_tokens, s.batch) for s in plan.segments]


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (0.5, 4), (1, 2), (1.5, 2)])
def test_exponents_of_the_optimum(source, capacity):
    theory = exponents(source, capacity)
    found = [optimum(Budget(source, capacity, data)) for data in BUDGETS]
    measured = {
        "loss": [best.risk for best in found],
        "growth_fraction": [best.growth_fraction for best in found],
        "peak_batch": [best.peak_batch for best in found],
        "horizon": [best.horizon for best in found],
        "constant_loss": [constant_optimum(best.budget)[1] for best in found],
    }
    for name, values in measured.items():
        assert slope(BUDGETS, np.array(values)).value == pytest.approx(
            getattr(theory, name), abs=0.02
        ), name


@given(
    source=st.floats(0.2, 2),
    capacity=st.floats(1.2, 6),
    data=st.floats(100, 1e12),
    smallest=st.integers(1, 16),
    factor=st.sampled_from([1, 4, 64, np.inf]),
    multiplier=st.floats(1, 1e4),
)
def test_any_optimum_spends_its_budget_and_beats_other_multipliers(
    source, capacity, data, smallest, factor, multiplier
):
    budget = Budget(source, capacity, data, min_batch=smallest, max_batch=smallest * factor)
    best = optimum(budget)
    assert data_left(budget, best.multiplier, best.horizon) == pytest.approx(data, rel=1e-8)
    assert smallest <= best.peak_batch <= smallest * factor
    constant = data / (smallest * min(factor, 3))
    assert best.risk <= schedule_risk(budget, [(data, data / constant)]) * (1 + 1e-8)


def test_no_free_form_schedule_is_better():
    """A hundred free stages, optimised without knowing the answer's form, come no lower."""
    budget = Budget(0.3, 4, 2**16, min_batch=1, max_batch=8)
    best = optimum(budget)
    shares = np.diff(1 - np.geomspace(1, 1e-4, 40), append=1.0)

    def risk(logits):
        batches = 1 + 7 / (1 + np.exp(-logits))
        return schedule_risk(budget, list(zip(shares * budget.data, batches, strict=True)))

    found = minimize(risk, np.linspace(-4, 2, 40), method="L-BFGS-B", options={"maxfun": 40_000})
    assert best.risk < found.fun < best.risk * 1.005


def test_the_schedule_follows_the_optimum():
    budget = Budget(0.3, 4, 2**20, min_batch=1, max_batch=8)
    best = optimum(budget)
    schedule = batch_schedule(best, 8)
    assert schedule.batches[0] == 1 and schedule.batches[-1] == 8
    assert schedule_risk(budget, stretches(budget, schedule)) == pytest.approx(best.risk, rel=0.01)
    for start, (before, after) in zip(
        schedule.starts[1:], itertools.pairwise(schedule.batches), strict=True
    ):
        left = float(time_left(budget, best.multiplier, (before * after) ** 0.5))
        assert start == pytest.approx(budget.data - data_left(budget, best.multiplier, left), abs=1)
    assert 0.9 < best.growth_data / budget.data < schedule.starts[1] / budget.data < 1


def test_an_easy_task_takes_the_largest_batch_at_once():
    best = optimum(Budget(1, 2, 2**20, max_batch=8))
    assert str(batch_schedule(best, 8)) == "8"
    assert best.growth_data == 0


def test_late_switching_wins_on_hard_tasks():
    budget = Budget(0.3, 4, 2**20, max_batch=8)
    data = budget.data
    late = schedule_risk(budget, [(0.95 * data, 1), (0.05 * data, 8)])
    early = schedule_risk(budget, [(0.2 * data, 1), (0.8 * data, 8)])
    constant = min(schedule_risk(budget, [(data, batch)]) for batch in range(1, 9))
    assert optimum(budget).risk < late < min(early, constant)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": 0}, "source"),
        ({"capacity": 1}, "capacity"),
        ({"lr": 0}, "lr"),
        ({"noise": 0}, "noise"),
        ({"min_batch": 0}, "batches"),
        ({"min_batch": 9, "max_batch": 8}, "batches"),
        ({"data": 3, "min_batch": 4}, "data"),
        ({"data": float("nan")}, "data"),
    ],
)
def test_bad_budgets(changes, told):
    with pytest.raises(InputError, match=told):
        Budget(**{"source": 0.3, "capacity": 4, "data": 1000, **changes})
