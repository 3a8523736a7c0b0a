import numpy as np
import pytest

from bss.laws.fitting.bootstrap import RunEffects, draw, estimate


@pytest.mark.parametrize("seeds", [1, 3])
def test_planted_variances_are_recovered_without_bias(seeds):
    generator = np.random.default_rng(0)
    runs = np.repeat(np.arange(7 * seeds), 5)
    design = np.stack([np.ones(len(runs)), runs // seeds, np.tile(np.arange(5.0), 7 * seeds)], 1)
    projection = np.eye(len(runs)) - design @ np.linalg.pinv(design)
    squares = []
    for _ in range(300):
        errors = 3.0 * generator.standard_normal(7 * seeds)[runs]
        errors = errors + generator.standard_normal(len(runs))
        effects = estimate(projection @ errors, design, runs)
        squares.append([effects.offset**2, effects.noise**2])
    np.testing.assert_allclose(np.mean(squares, axis=0), [9.0, 1.0], rtol=0.12)


def test_one_row_per_run_puts_all_variance_in_the_offset():
    residuals = np.array([1.0, -1.0, 1.0, -1.0])
    effects = estimate(residuals, np.ones((4, 1)), np.arange(4))
    assert effects.offset**2 == pytest.approx(4 / 3)
    assert effects.noise == 0
    assert effects.offset_dof == pytest.approx(3)


def test_draws_have_the_variances_inflated_by_few_degrees_of_freedom():
    runs = np.repeat(np.arange(4), 2)
    effects = RunEffects(offset=2.0, noise=0.5, offset_dof=10.0, noise_dof=1e6)
    drawn = draw(effects, runs, 40_000, np.random.default_rng(0))
    within = drawn[:, 0] - drawn[:, 1]
    assert np.var(within) == pytest.approx(2 * 0.25, rel=0.05)
    assert np.var(drawn[:, 0]) == pytest.approx(4.0 * 10 / 8 + 0.25, rel=0.05)
    assert np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1] == pytest.approx(0, abs=0.03)
