"""Plans as functions of the step, traced and not, also above 2^31 tokens and steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bss
from tests.schedules.drawn_plans import drawn_plan, places


@pytest.mark.parametrize("plans", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_drawn_plans_have_the_integers_of_their_steps(plans):
    for number in range(plans):
        plan = drawn_plan(number)
        steps = places(plan)
        expected = [plan.at(step).batch // 8 for step in steps]
        assert plan.every_k_schedule(8)(np.array(steps)).tolist() == expected
        lr = [plan.at(step).lr for step in steps]
        np.testing.assert_allclose(plan.lr_schedule()(np.array(steps)), lr, rtol=1e-12)
        # What a count of 32 bits reaches; an array of one size compiles once.
        low = jnp.array([step if step < 2**31 else 0 for step in steps], jnp.int32)
        at = [plan.at(step) for step in low.tolist()]
        assert plan.every_k_schedule(8)(low).tolist() == [step.batch // 8 for step in at]
        found = plan.lr_schedule()(low)
        np.testing.assert_allclose(found, [step.lr for step in at], rtol=0, atol=1e-6 * 8e-3)


def test_the_drawn_plans_go_beyond_32_bits():
    plans = [drawn_plan(number) for number in range(200)]
    assert sum(plan.tokens > 2**31 for plan in plans) > 50
    assert sum(plan.segments[-1].start_step > 2**31 for plan in plans) > 2


def test_in_jit_a_step_is_an_argument():
    plan = bss.plan("0:8 50%:16", tokens="1M", seq_len=64, lr=1e-3)
    schedule = jax.jit(plan.every_k_schedule(4))
    assert [int(schedule(step)) for step in (0, plan.steps - 1)] == [2, 4]
    assert schedule._cache_size() == 1
