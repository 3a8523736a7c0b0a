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
from bss.theory.joint import fewest_steps, joint_optimum, member, unroll, varying_risks, water_fill
from bss.theory.optimal import (
    Budget,
    batch_schedule,
    constant_optimum,
    data_left,
    optimum,
    schedule_risk,
    time_left,
)
from bss.theory.regression import Task

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


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (1, 2)])
def test_the_numerical_optimum_is_the_elementary_one(source, capacity):
    budget = Budget(source, capacity, 2**24, min_batch=2)
    numerical, exact = joint_optimum(budget, feedback=False), optimum(budget)
    assert numerical.risk == pytest.approx(exact.risk, rel=1e-6)
    assert numerical.horizon == pytest.approx(exact.horizon, rel=1e-4)
    assert numerical.ratio.max() * budget.lr == pytest.approx(exact.peak_batch, rel=0.05)


@given(total=st.floats(60, 1900), seed=st.integers(0, 99))
def test_water_filling_equalises_what_a_sample_saves(total, seed):
    draw = np.random.default_rng(seed)
    weight, widths = draw.uniform(1e-3, 1, 20), draw.uniform(0.5, 1.5, 20)
    total *= widths.sum() / 20
    r = water_fill(weight, widths, total, 2.0)
    assert widths @ r == pytest.approx(total, rel=1e-9)
    saved = weight / r**2
    inside = r > 2.001
    if inside.any():
        level = saved[inside].mean()
        np.testing.assert_allclose(saved[inside], level, rtol=1e-6)
        assert (saved[r <= 2.001] <= level * 1.01).all()


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (1, 2)])
def test_the_family_shares_data_and_noise_but_not_steps(source, capacity):
    best = joint_optimum(Budget(source, capacity, 2**20, max_batch=64))
    members = [member(best, share) for share in (0, 0.5, 1)]
    for one in (*members, fewest_steps(best)):
        np.testing.assert_allclose(one.batches / one.rates, best.ratio, rtol=1e-12)
        assert (one.rates <= best.budget.lr * (1 + 1e-12)).all()
    steps = [one.steps for one in members]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == pytest.approx(2**20, rel=1e-9)  # batch 1 throughout
    bounded = fewest_steps(best)
    assert bounded.batches.max() == 64
    assert steps[2] <= bounded.steps < steps[0]


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (1, 2)])
def test_in_the_exact_recursion_too_the_ratio_is_all_that_matters(source, capacity):
    best = joint_optimum(Budget(source, capacity, 2**13))
    task, risks = Task(source, capacity, 128), []
    for share in (0, 0.5, 1):
        rates, batches = unroll(best, member(best, share))
        assert batches.sum() == pytest.approx(2**13, rel=0.01)
        assert len(rates) == pytest.approx(member(best, share).steps, abs=2)
        risks.append(varying_risks(task, rates, batches)[-1])
    assert max(risks) < 1.02 * min(risks)


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


def test_bounds_that_cannot_spend_a_total_are_refused():
    with pytest.raises(InputError, match="cannot be spent"):
        water_fill(np.ones(3), np.ones(3), 2.0, 1.0)
