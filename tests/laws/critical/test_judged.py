"""The shape of steps against batch as an effect: planted laws that hold, and one that bends."""

import numpy as np
import pandas as pd
import pytest

from bss.contests.contrasts import judge
from bss.laws import fit_critical
from bss.laws.critical.judged import (
    hump,
    law_over_none,
    line_of,
    line_scatters,
    misfit,
    ratio,
    step_noise,
)
from bss.laws.fitting.estimate import Options
from tests.laws.critical.test_fit import planted

QUICK = Options(resamples=50, level=0.95)


def fitted(noise=0.02, alpha=1.0, models=6, power=0.5):
    curves = [
        planted(a=1000.0 + k, kappa=2000.0 * 2 ** (power * k), alpha=alpha, noise=noise).assign(
            params=1e6 * 2**k, budget_tokens=2e7 * 2**k
        )
        for k in range(models)
    ]
    return fit_critical(pd.concat(curves), overhead=0.2, reference=64, options=QUICK)


def test_steps_that_follow_the_law_show_no_pattern():
    fit = fitted()
    assert judge({0: misfit(fit.fits)})[0].sign == 0
    assert abs(misfit(fit.fits).estimate) < 0.05


def test_a_gentler_bend_is_shown_as_a_hump_and_moves_the_critical_batch():
    fit = fitted(alpha=0.6)
    found = judge({"hump": misfit(fit.fits), "level": law_over_none(fit.fits)})
    assert found["hump"].sign == 1
    assert found["level"].sign == 1
    value, leverage, rest = hump(fit.fits[0])
    assert value > 0.05
    assert leverage > 0
    assert np.std(rest) < np.std(fit.fits[0].residuals)


def test_the_hump_does_not_see_what_the_law_can_take_up():
    at = fitted(noise=0.0, models=2).fits[0]
    assert hump(at)[0] == pytest.approx(0, abs=1e-4)


def test_curves_of_one_model_count_as_one():
    fit = fitted()
    together = [at for at in fit.fits for _ in range(5)]
    many, once = misfit(together), misfit(fit.fits)
    assert many.n == once.n == 6
    assert many.pooled and once.pooled
    assert many.pooled.variance == pytest.approx(once.pooled.variance, rel=0.3)


def test_lines_by_law_and_without_are_those_of_the_definitions():
    fit = fitted()
    lines = {}
    for interpolated in (False, True):
        line = line_of(fit, interpolated=interpolated)
        name = "20% over 64" + ", interpolated" * interpolated
        row = next(row for row in fit.definitions if row.name == name)
        assert line and row.law
        lines[row.name] = line
        assert line.law.exponents[0].value == pytest.approx(row.law.exponents[0].value)
        assert line.y == pytest.approx([value for value in row.values])
    assert {found.freedom for found in line_scatters(lines).values()} <= {4, 8}


def test_a_ratio_has_the_errors_of_both_curves():
    fit = fitted()
    noise = step_noise(fit.fits)
    found = ratio(fit.fits[2], fit.fits[0], lambda at: at.B_crit, noise)
    alone = ratio(fit.fits[2], fit.fits[0], lambda at: at.B_crit)
    assert found and alone
    assert found.estimate == pytest.approx(np.log(2), abs=0.15)
    assert judge({0: found})[0].sign == 1
    assert alone.own is None
