import itertools

import numpy as np
import pytest
from scipy.integrate import quad

from bss.errors import InputError
from bss.theory.fsl import Drive, drive_of, finite_law, law_curve, limit_law, power_kernel
from bss.theory.regression import Stage, Task, risk_curve


def integrated(law, drive, gamma_of, s, q, time) -> float:
    """The law's integral by adaptive quadrature on pieces that grow from both ends."""
    marks = {0.0, time, *(e for e in drive.edges if e < time)}
    spread = np.geomspace(1e-2, time, 40)
    marks |= set(spread) | {max(time - x, 0.0) for x in spread}
    total = (1 + time) ** -s
    ordered = sorted(marks)
    for a, b in itertools.pairwise(ordered):
        gamma = gamma_of((a + b) / 2)

        def inside(z, gamma=gamma):
            return (1 + time - z) ** -q * ((1 + z) ** -s + law.noise) * gamma

        total += quad(inside, a, b, epsabs=0, epsrel=1e-12)[0]
    return total


@pytest.mark.parametrize("exponent", [0.5, 1.2, 1.75, 2.0])
def test_a_power_is_a_sum_of_exponentials(exponent):
    t = np.concatenate([[0], np.geomspace(1e-3, 1e14, 200)])
    np.testing.assert_allclose(power_kernel(exponent, 1e14)(t) * (1 + t) ** exponent, 1, rtol=1e-11)


def test_stages_equal_adaptive_quadrature():
    law = limit_law(0.3, 4, 1.0, 1e6)
    drive = drive_of([Stage(0.1, 1, 1e6), Stage(0.1, 8, 1e5), Stage(0.05, 4, 1e4)])
    times = np.array([1e5 + 1, 3.0, 1e5, 1.1e5 + 300, 1e5 + 100])
    expected = [
        integrated(law, drive, lambda z: float(drive.gamma(np.array(z))), 0.3, 1.75, t)
        for t in times
    ]
    np.testing.assert_allclose(law_curve(law, drive, times), expected, rtol=1e-9)


def test_any_drive_is_resolved_to_the_tolerance():
    """A smooth γ against a fine grid of the same law, and a jump that is not announced."""
    law = limit_law(0.5, 2, 0.3, 1e4)
    smooth = Drive(lambda t: 0.1 * (1 + t) ** -0.5 * (1.2 + np.sin(t / 50)))
    times = np.linspace(0, 1e4, 4001)
    fine = law_curve(law, smooth, times, tolerance=1e-13)
    coarse = law_curve(law, smooth, times[[400, 4000]])
    np.testing.assert_allclose(coarse, fine[[400, 4000]], rtol=1e-9)

    jump, times = drive_of([Stage(0.1, 1, 5555.5), Stage(0.1, 16, 1e5)]), [100.0, 556.0, 5000.0]
    silent = law_curve(law, Drive(jump.gamma), times)
    np.testing.assert_allclose(silent, law_curve(law, jump, times), rtol=1e-8)


def schedules(rate: float) -> dict[str, list[Stage]]:
    """Of the same intrinsic time."""
    steps = 1600 / rate
    return {
        "constant": [Stage(rate, 2, steps)],
        "switch": [Stage(rate, 1, steps * 0.75), Stage(rate, 8, steps * 0.25)],
        "stages": [Stage(rate, batch, steps / 4) for batch in (1, 2, 4, 8)],
        "decay": [Stage(rate, 1, steps / 2), Stage(rate / 2, 1, steps / 2), Stage(rate / 4, 1, 2)],
    }


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (0.5, 4), (0.5, 2), (1, 2), (1.5, 2)])
@pytest.mark.parametrize("name", ["constant", "switch", "stages", "decay"])
def test_the_finite_law_is_the_recursion_up_to_the_rate(source, capacity, name):
    """Its error is of first order in the rate, or higher where no noise is left."""
    task = Task(source, capacity, 128)
    errors = []
    for rate in (0.05, 0.01):
        run = schedules(rate)[name]
        ends = np.cumsum([0, *(s.steps for s in run)])
        clock = np.cumsum([0, *(s.steps * s.rate for s in run)])
        steps = np.unique(np.concatenate([ends, np.geomspace(1, ends[-1], 60)]))
        exact = risk_curve(task, run, steps)
        law = law_curve(finite_law(task), drive_of(run), np.interp(steps, ends, clock))
        errors.append(np.abs(law / exact - 1).max())
    assert errors[1] < 0.02
    assert errors[0] / errors[1] > 3


@pytest.mark.parametrize(("source", "capacity"), [(0.3, 4), (0.5, 2), (1, 2)])
def test_the_limit_follows_the_recursion_up_to_constants(source, capacity):
    task, run = Task(source, capacity, 1024), [Stage(0.05, 1, 2**16), Stage(0.05, 8, 2**14)]
    steps = np.geomspace(100, 2**16 + 2**14, 80)
    law = limit_law(source, capacity, 1.0, 1e5)
    exact = risk_curve(task, run, steps)
    ratio = law_curve(law, drive_of(run), 0.05 * steps) / exact
    assert ratio.max() / ratio.min() < 2.5
    assert exact.max() / exact.min() > 7


@pytest.mark.parametrize("times", [[-1.0], [float("nan")], [11.0]])
def test_times_outside_the_law_are_refused(times):
    drive = drive_of([Stage(0.1, 1, 100)])
    with pytest.raises(InputError, match="intrinsic time"):
        law_curve(limit_law(0.3, 4, 1.0, 10.0), drive, times)
    assert law_curve(limit_law(0.3, 4, 1.0, 10.0), drive, []).shape == (0,)
