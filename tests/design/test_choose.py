"""The runs that are chosen, and where to stop, of planted laws."""

import numpy as np
import pytest

from bss.design.belief import Belief
from bss.design.choose import narrowest, within
from bss.design.goals import Goal, Runs
from bss.errors import InputError
from tests.design.planted import planted

CELLS = np.array([[2e8, 1e10], [8e8, 4e10]])
GOAL = Goal.parse("B_opt", CELLS)


def candidates(count=40, seed=0):
    draw = np.random.default_rng(seed)
    return Runs(
        2e8 * 4 ** draw.random(count), 1e10 * 4 ** draw.random(count),
        4e4 * 50 ** draw.random(count), None,
    )  # fmt: skip


def cost_of(runs):
    return runs.params * runs.tokens / 1e18


def test_chosen_runs_narrow_more_than_random_ones_of_the_same_number():
    runs = candidates()
    belief, ones = Belief.of(planted(apart=0.002), GOAL, runs), np.ones(40)
    choices, _ = narrowest(belief, ones, ones, spent=100.0, pick=3)
    draw = np.random.default_rng(1)
    random = [belief.after([*draw.choice(40, 3, replace=False)], ones) for _ in range(50)]
    widths = [float(np.diff(one.interval)[0]) for one in random]
    assert np.diff(choices[-1].after)[0] < min(widths) * 1.05
    assert np.diff(choices[-1].after)[0] < 0.8 * np.median(widths)


def test_exchange_reaches_the_best_pair_of_all():
    runs = candidates(16, seed=2)
    belief, ones = Belief.of(planted(), GOAL, runs), np.ones(16)
    choices, _ = narrowest(belief, ones, ones, spent=1e3, pick=2)
    pairs = [(i, j) for i in range(16) for j in range(i)]
    widths = [float(np.diff(belief.after([*pair], ones).interval)[0]) for pair in pairs]
    assert np.diff(choices[-1].after)[0] == pytest.approx(min(widths), rel=1e-9)


def test_a_third_checks_the_law_where_forms_lie_apart():
    runs = candidates()
    ones = np.ones(40)
    choices, _ = narrowest(Belief.of(planted(apart=0.2, column=1), GOAL, runs), ones, ones, 9.0, 3)
    assert [one.checks for one in choices] == [False, False, True]
    choices, _ = narrowest(Belief.of(planted(), GOAL, runs), ones, ones, 100.0, 3)
    assert not any(one.checks for one in choices)


def test_stops_where_repeating_all_runs_would_narrow_more():
    runs, ones = candidates(), np.ones(40)
    belief = Belief.of(planted(), GOAL, runs)
    cheap, said = narrowest(belief, 0.01 * ones, ones, spent=100.0, pick=3)
    assert all(one.worth for one in cheap) and not said
    dear, said = narrowest(belief, 1e6 * ones, ones, spent=100.0, pick=3)
    assert not dear[0].worth and "as it is nothing is worth its price" in said


def test_a_goal_that_nothing_moves_is_refused():
    runs = candidates()._replace(batch_tokens=np.full(40, 3e5), params=np.full(40, 4e8))
    law = planted(seen=[np.full(9999, x) for x in (4e8, 2e10, 3e5)] + [None])
    with pytest.raises(InputError, match="no candidate moves it"):
        narrowest(Belief.of(law, GOAL, runs), np.ones(40), np.ones(40), 1.0, 3)


@pytest.mark.parametrize("of_law", [False, True])
def test_a_budget_is_kept_and_used_up(of_law):
    runs = candidates()
    cost = cost_of(runs)
    belief = Belief.of(planted(), GOAL, runs)
    picks = within(belief, cost, 0.3 * cost.sum(), of_law=of_law)
    left = 0.3 * cost.sum() - cost[picks].sum()
    assert len({*picks}) == len(picks) and left >= 0
    assert left < np.delete(cost, picks).min()


def test_by_goal_narrows_it_more_than_by_the_law_at_equal_cost():
    runs, ones = candidates(200), np.ones(200)
    cost = cost_of(runs)
    belief = Belief.of(planted(), GOAL, runs)
    chosen = [within(belief, cost, 0.05 * cost.sum(), of_law=law) for law in (False, True)]
    widths = [float(np.diff(belief.after(picks, ones).interval)[0]) for picks in chosen]
    assert widths[0] < widths[1]
