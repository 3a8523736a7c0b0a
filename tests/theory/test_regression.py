from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.theory.recursion import varying_risks
from bss.theory.regression import (
    Stage,
    Task,
    advance,
    check_rate,
    final_risk,
    propagator,
    risk_curve,
    stable_rate,
    stages,
)


def looped(task: Task, run: list[Stage]) -> np.ndarray:
    """The recursion as it is written down, one step after another."""
    eigenvalues, moments = task.eigenvalues, task.target
    risks = [eigenvalues @ moments / 2]
    for stage in run:
        eta, batch = stage.rate, stage.batch
        for _ in range(int(stage.steps)):
            common = eigenvalues @ moments + task.noise
            moments = (1 - eta * eigenvalues) ** 2 * moments + eta**2 / batch * (
                eigenvalues**2 * moments + eigenvalues * common
            )
            risks.append(eigenvalues @ moments / 2)
    return np.array(risks)


def squared(task: Task, run: list[Stage], digits: int = 60) -> float:
    """The final risk by repeated squaring of the whole step, in decimals of `digits` digits."""
    with localcontext() as context:
        context.prec = digits
        size = task.modes + 1
        eigenvalues = [Decimal(float(v)) for v in task.eigenvalues]
        state = np.array([*(Decimal(float(v)) for v in task.target), Decimal(1)], object)
        noise = Decimal(task.noise)
        for stage in run:
            eta, coupling = Decimal(stage.rate), Decimal(stage.rate) ** 2 / Decimal(stage.batch)
            step = np.full((size, size), Decimal(0), object)
            step[-1, -1] = Decimal(1)
            for i, a in enumerate(eigenvalues):
                step[i, :-1] = [coupling * a * b for b in eigenvalues]
                step[i, i] += (1 - eta * a) ** 2 + coupling * a * a
                step[i, -1] = coupling * a * noise
            count = int(stage.steps)
            while count:
                if count % 2:
                    state = step @ state
                step, count = step @ step, count // 2
        return float(sum(a * m for a, m in zip(eigenvalues, state[:-1], strict=True)) / 2)


@pytest.mark.parametrize(
    ("task", "run"),
    [
        (Task(0.3, 4, 128), [Stage(0.1, 1, 4096), Stage(0.1, 8, 2048)]),
        (Task(1.0, 2, 64, 0.25), [Stage(0.2, 4, 3000), Stage(0.05, 2, 1000)]),
        (Task(0.5, 1.5, 200, 0.0), [Stage(0.3, 16, 2000)]),
        (Task(0.3, 4, 16), [Stage(1.5, 64, 300), Stage(0.1, 3, 300)]),
        (Task(2.0, 3, 1), [Stage(0.1, 1, 500)]),
    ],
)
def test_every_step_equals_the_loop(task, run):
    expected = looped(task, run)
    found = risk_curve(task, run, np.arange(len(expected)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_2_to_the_15_steps_equal_the_loop():
    task, run = Task(0.3, 4, 32), [Stage(0.1, 1, 2**14), Stage(0.1, 8, 2**14)]
    at = 2 ** np.arange(16)
    np.testing.assert_allclose(risk_curve(task, run, at), looped(task, run)[at], rtol=1e-10)


@pytest.mark.parametrize(
    ("task", "power"),
    [(Task(0.3, 4, 16), 20), (Task(0.3, 4, 16), 40), (Task(1.0, 1.5, 24, 0.1), 30)],
)
def test_longer_runs_equal_extended_precision(task, power):
    run = [Stage(0.1, 1, 2**power), Stage(0.2, 4, 2 ** (power - 3) + 5), Stage(0.05, 8, 999)]
    assert final_risk(task, run) == pytest.approx(squared(task, run), rel=1e-8)


def test_a_long_wide_schedule_lowers_the_risk():
    task = Task(0.3, 4, 512)
    run = [Stage(0.1, 1, 2**39), Stage(0.1, 4, 2**38), Stage(0.1, 16, 2**38)]
    risk = final_risk(task, run)
    assert risk_curve(task, run, [0])[0] > risk > 0


@given(
    source=st.floats(0.1, 2),
    capacity=st.floats(1.1, 5),
    modes=st.integers(1, 30),
    batch=st.integers(1, 64),
    part=st.floats(0.01, 0.95),
    steps=st.integers(1, 60),
)
def test_any_task_equals_the_loop(source, capacity, modes, batch, part, steps):
    task = Task(source, capacity, modes)
    run = [Stage(part * stable_rate(task, batch), batch, steps)]
    expected = looped(task, run)
    np.testing.assert_allclose(risk_curve(task, run, np.arange(steps + 1)), expected, rtol=1e-10)


def test_equal_poles_are_told_apart():
    # (1 + 1/B) η (λ_1 + λ_2) = 2 makes the diagonal of the first two modes equal.
    task, batch = Task(0.5, 2, 8), 64
    rate = 2 / (1 + 1 / batch) / (1 + task.eigenvalues[1])
    run = [Stage(rate, batch, 200)]
    np.testing.assert_allclose(risk_curve(task, run, range(201)), looped(task, run), rtol=1e-10)


def test_the_bound_separates_decay_from_growth():
    task = Task(0.5, 2, 32, 0.0)
    assert stable_rate(task, 1e18) == pytest.approx(2)
    for batch in (1, 4, 64):
        bound = stable_rate(task, batch)
        below, above = (looped(task, [Stage(f * bound, batch, 4000)]) for f in (0.98, 1.02))
        assert below[-1] < below[2000]
        assert above[-1] > above[2000]


def test_advancing_in_two_parts_is_advancing_at_once():
    task = Task(0.3, 4, 40)
    step = propagator(task, 0.1, 2)
    twice = advance(step, advance(step, task.target, 1000.5), 234.5)
    np.testing.assert_allclose(twice, advance(step, task.target, 1235), rtol=1e-11)


def test_varying_rates_equal_stages_and_the_loop():
    task = Task(0.3, 4, 32)
    run = [Stage(0.1, 1, 400), Stage(0.05, 8, 300), Stage(0.2, 2, 100)]
    rates = np.repeat([s.rate for s in run], [int(s.steps) for s in run])
    batches = np.repeat([s.batch for s in run], [int(s.steps) for s in run])
    found = varying_risks(task, rates, batches)
    np.testing.assert_allclose(found, risk_curve(task, run, np.arange(801)), rtol=1e-11)

    decay = np.linspace(0.2, 0, 50)
    expected = looped(task, [Stage(rate, 3, 1) for rate in decay])
    np.testing.assert_allclose(varying_risks(task, decay, np.full(50, 3)), expected, rtol=1e-12)


def sampled_risks(task, run, runs):
    """Excess risks [K + 1, runs] of SGD on Gaussian samples: the check that needs no theory."""
    draw = np.random.default_rng(0)
    scale, target = np.sqrt(task.eigenvalues), np.sqrt(task.target)
    weights = np.zeros((runs, task.modes))
    risks = [0.5 * (weights - target) ** 2 @ task.eigenvalues]
    for stage in run:
        for _ in range(stage.steps):
            shape = (runs, stage.batch, task.modes)
            features = scale * draw.standard_normal(shape)
            labels = draw.standard_normal(shape[:2]) * np.sqrt(task.noise)
            errors = np.einsum("rbm,rm->rb", features, weights - target) - labels
            gradient = np.einsum("rb,rbm->rm", errors, features) / stage.batch
            weights = weights - stage.rate * gradient
            risks.append(0.5 * (weights - target) ** 2 @ task.eigenvalues)
    return np.array(risks)


def test_sampled_runs_agree_within_their_standard_error():
    task = Task(0.5, 2, 8)
    run = [Stage(0.3, 1, 60), Stage(0.3, 4, 40)]
    at = np.array([1, 5, 20, 60, 63, 80, 100])
    sampled, exact = sampled_risks(task, run, 4000)[at], risk_curve(task, run, at)
    standard_error = sampled.std(axis=1, ddof=1) / np.sqrt(4000)
    deviation = (sampled.mean(axis=1) - exact) / standard_error
    assert np.abs(deviation).max() < 3
    assert np.sqrt(np.mean(deviation**2)) < 2
    assert (standard_error < 0.025 * exact).all()


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (1, 2)])
def test_in_the_exact_recursion_too_the_ratio_is_all_that_matters(source, capacity):
    """The batch grows, the LR falls, or both: at one ratio b/η in intrinsic time."""
    horizon, task, risks = 400.0, Task(source, capacity, 128), []
    for share in (0, 0.5, 1):
        left, rates, batches = horizon, [], []
        while left > 0:
            growth = max(1.0, 8 * (left / 40 + 1) ** -0.9)  # from 1 to 8, at the end of the run
            rates.append(0.05 / growth ** (1 - share))
            batches.append(growth**share)
            left -= rates[-1]
        assert sum(batches) == pytest.approx(17_340, rel=0.01)
        risks.append(varying_risks(task, np.array(rates), np.array(batches))[-1])
    assert max(risks) < 1.02 * min(risks)


def test_modes_that_are_not_learnt_are_noise():
    wide, narrow = Task(0.5, 1.5, 60), Task(0.5, 1.5, 12)
    lost = narrow.approximation - wide.approximation  # what the modes 13 to 60 carry
    seen = Task(0.5, 1.5, 12, narrow.noise + 2 * lost)
    draw, target = np.random.default_rng(1), np.sqrt(wide.target)
    weights = np.zeros((8000, 12))
    for _ in range(30):
        features = np.sqrt(wide.eigenvalues) * draw.standard_normal((8000, 60))
        labels = features @ target + draw.standard_normal(8000)
        errors = np.sum(features[:, :12] * weights, axis=1) - labels
        weights -= 0.2 * errors[:, None] * features[:, :12]
    risks = 0.5 * (weights - target[:12]) ** 2 @ narrow.eigenvalues
    exact = final_risk(seen, [Stage(0.2, 1, 30)])
    assert abs(risks.mean() - exact) < 3 * risks.std() / np.sqrt(8000)
    assert final_risk(narrow, [Stage(0.2, 1, 30)]) < exact - 0.5 * risks.std() / np.sqrt(8000)


def test_the_approximation_term_is_the_tail_of_the_target():
    j = np.arange(21, 3_000_000, dtype=float)
    tail = 0.5 * np.sum(j ** (-1 - 0.8 * 2))
    assert Task(0.8, 2, 20).approximation == pytest.approx(tail, rel=1e-5)


def test_a_schedule_switches_in_data():
    run = stages(BatchSchedule.parse("0:1 50%:8", 1000), 1000, 0.1)
    assert run == (Stage(0.1, 1, 500), Stage(0.1, 8, 62))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Task(0, 2, 4), "source"),
        (lambda: Task(float("nan"), 2, 4), "source"),
        (lambda: Task(0.5, 1, 4), "capacity"),
        (lambda: Task(0.5, 2, 0), "modes"),
        (lambda: Task(0.5, 40, 10**4), "lower modes"),
        (lambda: Task(0.5, 2, 10**6), "modes"),
        (lambda: Task(0.5, 2, 4, -1), "noise"),
        (lambda: check_rate(Task(0.5, 2, 4), 2.0, 1), "below 0."),
        (lambda: check_rate(Task(0.5, 2, 4), 0.0, 1), "below 0."),
        (lambda: check_rate(Task(0.5, 2, 4), 0.1, 0.5), "batch"),
        (lambda: risk_curve(Task(0.5, 2, 4), [Stage(0.1, 1, 5)], [6]), "between 0 and the 5"),
        (lambda: varying_risks(Task(0.5, 2, 4), np.ones(2), np.ones(2)), "not stable"),
        (lambda: varying_risks(Task(0.5, 2, 4), np.ones(2), np.ones(3)), "lr: shape"),
        (lambda: varying_risks(Task(0.5, 2, 4), -np.ones(2), np.ones(2)), "negative"),
    ],
)
def test_bad_input(make, told):
    with pytest.raises(InputError, match=told) as error:
        make()
    assert "\n" not in str(error.value)
