import numpy as np
import pytest

from bss.laws.resampling import (
    RunEffects,
    draw_errors,
    draw_noise,
    redraw,
    rms,
    robust_scale,
    run_effects,
)


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_planted_variances_are_recovered_without_bias(seeds):
    generator = np.random.default_rng(0)
    runs = np.repeat(np.arange(7 * seeds), 5)
    design = np.stack([np.ones(len(runs)), runs // seeds, np.tile(np.arange(5.0), 7 * seeds)], 1)
    projection = np.eye(len(runs)) - design @ np.linalg.pinv(design)
    squares = []
    for _ in range(300):
        errors = 3.0 * generator.standard_normal(7 * seeds)[runs]
        errors = errors + generator.standard_normal(len(runs))
        effects = run_effects(projection @ errors, design, runs)
        squares.append([effects.offset**2, effects.noise**2])
    np.testing.assert_allclose(np.mean(squares, axis=0), [9.0, 1.0], rtol=0.12)


def test_one_row_per_run_puts_all_variance_in_the_offset():
    residuals = np.array([1.0, -1.0, 1.0, -1.0])
    effects = run_effects(residuals, np.ones((4, 1)), np.arange(4))
    assert effects.offset**2 == pytest.approx(4 / 3)
    assert effects.noise == 0
    assert effects.offset_dof == pytest.approx(3)


@pytest.mark.parametrize("without", ["noise", "offset"])
def test_a_variance_that_comes_out_negative_is_zero_and_the_other_carries_all(without):
    runs, Z = np.repeat(np.arange(4), 3), np.repeat(np.eye(4), 3, axis=0)
    column = np.array([0, 1, 2, 5, 3, 9, 1, 7, 4, 2, 8, 3.0])
    design = np.stack([np.ones(12), column], axis=1)
    left_over = np.eye(12) - design @ np.linalg.pinv(design)
    mean = Z @ Z.T / 3
    generator = np.random.default_rng(0)
    residuals, effects = np.zeros(12), RunEffects(1.0, 1.0, 1.0, 1.0)
    for _ in range(1000):
        errors = {
            "noise": generator.standard_normal(4)[runs],
            "offset": (np.eye(12) - mean) @ generator.standard_normal(12),
        }[without]
        residuals = left_over @ errors
        effects = run_effects(residuals, design, runs)
        if getattr(effects, without) == 0:
            break
    if without == "noise":  # what runs' offsets alone give between runs
        between = np.trace(mean @ left_over @ Z @ Z.T @ left_over)
        assert effects.offset**2 == pytest.approx(residuals @ mean @ residuals / between)
    else:
        assert effects.noise**2 == pytest.approx(residuals @ residuals / np.trace(left_over))
    assert getattr(effects, without) == 0


def test_draws_have_the_variances_inflated_by_few_degrees_of_freedom():
    runs = np.repeat(np.arange(4), 2)
    effects = RunEffects(offset=2.0, noise=0.5, offset_dof=10.0, noise_dof=1e6)
    drawn = draw_errors(effects, runs, 40_000, np.random.default_rng(0))
    within = drawn[:, 0] - drawn[:, 1]
    assert np.var(within) == pytest.approx(2 * 0.25, rel=0.05)
    assert np.var(drawn[:, 0]) == pytest.approx(4.0 * 10 / 8 + 0.25, rel=0.05)
    assert np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1] == pytest.approx(0, abs=0.03)


def test_what_is_not_used_is_not_drawn_and_outliers_do_not_move_the_scale():
    generator = np.random.default_rng(0)
    used = np.arange(24).reshape(4, 6) % 6 < 5
    runs = np.broadcast_to(np.arange(4)[:, None], used.shape)
    residuals = np.where(used, generator.standard_normal(used.shape), np.nan)
    effects = run_effects(residuals[used], np.ones((20, 1)), runs[used])
    drawn = redraw(effects, used, runs, 500, generator)
    assert drawn.shape == (500, 4, 6) and not drawn[:, ~used].any()
    assert drawn[:, used].std() == pytest.approx(residuals[used].std(), rel=0.5)
    values = np.append(generator.normal(3.0, 2.0, 20_000), np.full(50, 1e9))
    assert robust_scale(values - 3.0) == pytest.approx(2.0, rel=0.05)


def test_a_drawn_deviation_is_as_uncertain_as_its_degrees_of_freedom():
    noise = draw_noise(2.0, 4.0, (4000, 50), np.random.default_rng(0))
    precision = 1 / noise.var(axis=1)
    assert precision.mean() == pytest.approx(1 / 4, rel=0.1)
    assert precision.std() / precision.mean() == pytest.approx(np.sqrt(2 / 4), rel=0.15)


def test_a_scale_is_about_zero():
    values = np.array([1.0, 2.0, 4.0, 8.0, 100.0])
    assert robust_scale(values) == pytest.approx(4 * 1.4826)
    assert rms([3.0, np.nan, 4.0]) == pytest.approx(12.5**0.5)
