"""The closed form of a belief after runs, against a posterior that was made with them."""

import numpy as np
import pytest

from bss.design.belief import Belief
from bss.design.goals import SHARES, Goal, Runs
from tests.design.planted import NOISE, planted

CELLS = np.array([[2e8, 1e10], [8e8, 4e10]])


def runs(rates, count=6):
    spread = np.linspace(0, 1, count)
    lr = 1e-3 * 4 ** spread[::-1] if rates else None
    return Runs(2e8 * 4**spread, np.full(count, 2e10), 5e4 * 20 ** np.roll(spread, 2), lr)


@pytest.mark.parametrize("goal", ["B_opt", "loss:400M,20B", "exponent"])
@pytest.mark.parametrize("rates", [False, True])
def test_adding_runs_gives_the_variance_of_the_posterior_with_them(goal, rates):
    asked, candidates = Goal.parse(goal, CELLS), runs(rates)
    before = Belief.of(planted(rates=rates), asked, candidates)
    start = before.variance
    for run in (1, 4, 4):
        before.add(run)
    seen = [None if x is None else x[[1, 4, 4]] for x in candidates]
    _, F = functional(planted(rates=rates), asked)
    known = planted(rates=rates, seen=seen)
    grid, _ = asked.grid(known.space)
    (form,) = known.posterior(*grid)
    exact = SHARES @ np.diag(F @ form.covariance @ F.T)
    assert before.variance == pytest.approx(float(exact), rel=1e-6)
    assert before.variance < 0.999 * start or goal == "exponent"


def functional(law, goal):
    grid, shape = goal.grid(law.space)
    (form,) = law.posterior(*grid)
    return goal.linear(grid.batch_tokens, form.mean, form.covariance, shape)


def test_seeds_are_runs_that_are_averaged():
    goal, candidates = Goal.parse("B_opt", CELLS), runs(False)
    one, many = (Belief.of(planted(), goal, candidates) for _ in range(2))
    one.add(2, seeds=3)
    for _ in range(3):
        many.add(2)
    assert one.variance == pytest.approx(many.variance, rel=1e-9)


def test_narrowing_is_what_adding_the_run_does():
    belief = Belief.of(planted(apart=0.003), Goal.parse("B_opt", CELLS), runs(False))
    expected = belief.narrowing(np.full(6, 2.0))
    width = np.diff(belief.interval)
    for run in range(6):
        after = belief.after([run], np.full(6, 2.0))
        assert np.log(width / np.diff(after.interval)) == pytest.approx(expected[run], rel=1e-6)


def test_best_batch_of_a_parabola_and_its_spread():
    value, F = functional(planted(), Goal.parse("B_opt", CELLS))
    assert np.exp(value) == pytest.approx(3e5, rel=1e-6)
    (form,) = planted().posterior(*Goal.parse("B_opt", CELLS).grid(planted().space)[0])
    spread = np.sqrt(F[0] @ form.covariance @ F[0])
    # -∂_b f′/f″ of β b + γ b²: β has the standard deviation .01, and f″ is .02.
    assert spread == pytest.approx(0.01 / 0.02, rel=0.05)


def test_tuned_rate_moves_the_best_batch_by_its_coupling():
    law = planted(rates=True)
    value, F = functional(law, Goal.parse("B_opt", CELLS))
    assert np.exp(value) == pytest.approx(3e5, rel=1e-6)
    H = np.array([[0.02, -0.006], [-0.006, 0.04]])
    (form,) = law.posterior(*Goal.parse("B_opt", CELLS).grid(law.space)[0])
    spread = np.sqrt(F[0] @ form.covariance @ F[0])
    row = np.linalg.inv(H)[0] * 0.01
    assert spread == pytest.approx(float(np.hypot(*row)), rel=0.05)


def test_forms_apart_widen_the_interval_and_a_run_between_them_settles_it():
    goal, candidates = Goal.parse("B_opt", CELLS), runs(False)
    alone = Belief.of(planted(), goal, candidates)
    belief = Belief.of(planted(apart=0.01), goal, candidates)
    assert belief.variance > alone.variance + (0.01 / 0.02) ** 2 * 0.9
    doubt = belief.doubt(np.ones(6))
    far = np.abs(np.log(candidates.batch_tokens / 3e5))
    assert doubt[far.argmax()] > doubt[far.argmin()] and NOISE < 0.01
    run = int(doubt.argmax())
    belief.add(run)
    assert belief.doubt(np.ones(6))[run] < doubt[run]
