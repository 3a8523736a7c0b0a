"""Each rule gives numbers that its source prints; the docstring of the rule says where."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from bss.rules import RULES, SCALINGS, Change, Hyperparameters, Setting, timescale


def setting(params, tokens, seq_len=2048, **known) -> Setting:
    return Setting(params, tokens, seq_len, **known)


def number(found: float | None) -> float:
    assert found is not None
    return found


def scaled(name, times, reference=1.0, **changed) -> Hyperparameters:
    """A reference with settings of 1, at so many times its batch."""
    start = Hyperparameters(reference, 1.0, weight_decay=1.0, **changed)
    return SCALINGS[name](start, Change(reference * times, noise_scale=64))


def test_deepseek_gives_its_7b_model():
    layers, width, seq_len, tokens = 30, 4096, 4096, 2e12
    flops = (72 * layers * width**2 + 12 * layers * width * seq_len) * tokens
    found = RULES["deepseek"](setting(6.9e9, tokens, seq_len, flops=flops))
    assert found.lr == pytest.approx(4.2e-4, rel=0.02)
    assert found.batch_tokens == pytest.approx(2304 * seq_len, rel=0.03)


def test_step_law_gives_its_star():
    found = RULES["step-law"](setting(2.155e9, 8e9))
    assert (found.lr, found.batch_tokens) == pytest.approx((4.4e-4, 2.6e5), rel=0.02)


def test_step_law_is_best_on_the_runs_that_it_was_fitted_to():
    runs = pd.read_csv("results/published/steplaw_dense_best.csv")
    for _, cell in runs.groupby(["params", "tokens"]):
        planned = setting(float(cell["params"].iloc[0]), float(cell["tokens"].iloc[0]))
        assert not RULES["step-law"].outside(planned)
        batch = number(RULES["step-law"](planned).batch_tokens)
        measured, losses = (cell["batch"] * cell["seq_len"]).to_numpy(), cell["loss"].to_numpy()
        assert np.interp(math.log(batch), np.log(measured), losses) - losses.min() <= 0.005


def test_kaplans_critical_batch_doubles_for_every_13_percent():
    planned = [setting(1e7, 1e9, loss=3 * 0.87**i) for i in (0, 1, 2)]
    batches = [number(RULES["kaplan"](each).batch_tokens) for each in planned]
    growth = [after / before for before, after in pairwise(batches)]
    assert growth == pytest.approx([2, 2], rel=0.04)


def test_kaplans_rate_is_the_line_that_others_draw():
    assert RULES["kaplan-rate"](setting(2.155e9, 8e9)).lr == pytest.approx(2.4e-4, rel=0.01)
    assert RULES["kaplan-rate"](setting(2e10, 8e9)).lr is None


def test_minicpm_is_the_line_of_its_figure():
    for loss in (1.0, 2.5, 4.0):
        batch = number(RULES["minicpm"](setting(3e7, 1e9, loss=loss)).batch_tokens)
        assert math.log(batch) == pytest.approx(20.91 - 6.24 * math.log(loss), abs=0.01)


def test_power_lines_gives_the_best_batch_and_timescale_of_its_table():
    planned = setting(610e6, 20 * 610e6, lr=2e-3, batch_tokens=252 * 2048)
    batch = RULES["power-lines"](planned).batch_tokens
    assert batch == pytest.approx(252 * 2048, rel=0.15)
    assert timescale(planned) == pytest.approx(0.21, rel=0.07)
    decay = number(RULES["power-lines-decay"](planned).weight_decay)
    assert 252 * 2048 / (2e-3 * decay * planned.tokens) == pytest.approx(timescale(planned))


def test_power_lines_critical_batch_is_where_the_timescale_of_its_table_drifts():
    batch = number(RULES["power-lines-critical"](setting(610e6, 20 * 610e6)).batch_tokens)
    assert 2016 * 2048 < batch < 4032 * 2048


def test_power_lines_decay_takes_the_best_batch_by_default():
    planned = setting(610e6, 1e10, lr=2e-3)
    found = RULES["power-lines-decay"](planned)
    assert found.batch_tokens == RULES["power-lines"](planned).batch_tokens


@pytest.mark.parametrize("params", [85e6, 302e6, 1.2e9])
def test_zhangs_law_in_tokens_is_that_in_parameters_at_20_tokens_each(params):
    found = RULES["zhang"](setting(params, 20 * params)).batch_tokens
    assert found == pytest.approx(93.20 * (params / 1e6) ** 0.47 * 512, rel=0.01)


@pytest.mark.parametrize(
    ("tokens", "power"),
    [(0.44e9, 18), (0.7e9, 19), (2.5e9, 19), (3.4e9, 20), (9.6e9, 20), (17.6e9, 21), (65.6e9, 21)],
)
def test_nanochat_gives_the_batches_of_its_journal(tokens, power):
    assert RULES["nanochat"](setting(1e8, tokens)).batch_tokens == 2**power


def test_nanochat_covers_budgets_in_proportion_to_its_models():
    matrices = 84_935_808
    assert not RULES["nanochat"].outside(setting(matrices, 1.156e9))
    (found,) = RULES["nanochat"].outside(setting(matrices, 20 * matrices))
    assert found == "tokens_per_param 20 is outside 10.6 to 17.6"


@pytest.mark.parametrize(
    ("steps", "batch", "width", "lr", "beta2"),
    [
        (32_844, 32, 512, 0.003646, 0.994962),
        (46_274, 16, 640, 0.002063, 0.997478),
        (33_965, 16, 768, 0.001719, 0.997478),
    ],
)
def test_marin_gives_the_snapshot_of_its_configs(steps, batch, width, lr, beta2):
    found = RULES["marin"](setting(1e8, steps * batch * 4096, d_model=width))
    assert found.batch_tokens == batch * 4096
    assert (found.lr, found.beta2) == pytest.approx((lr, beta2), abs=1e-6)


def test_marin_halves_the_batch_whose_rate_is_too_large():
    found = RULES["marin"](setting(1e9, 2**16 * 4096 * 1024, d_model=512))
    assert (found.batch_tokens, found.beta2) == (128 * 4096, 0.98)
    assert number(found.lr) <= 0.01


@pytest.mark.parametrize(
    ("tokens", "width", "batch"),
    [(4 * 2**28, 4096, None), (8 * 2**28, 4096, 8 * 4096), (1e13, 8192, None)],
)
def test_marin_sets_no_batch_outside_its_sweeps(tokens, width, batch):
    assert RULES["marin"](setting(1e9, tokens, d_model=width)).batch_tokens == batch


def test_mccandlishs_critical_batch_is_where_the_rate_is_half_of_the_largest():
    assert RULES["mccandlish"](setting(1e8, 1e9, noise_scale=5e4)).batch_tokens == 5e4
    lr = scaled("noise-scale", 2**40, reference=64).lr  # from the noise scale on
    assert lr == pytest.approx(2)


def test_rates_of_goyals_table():
    assert scaled("linear", 8192 / 256).lr == pytest.approx(32)
    assert scaled("sqrt", 8192 / 256).lr == pytest.approx(math.sqrt(32))


def test_the_surge_is_largest_at_the_noise_scale_and_a_root_far_below_it():
    rates = [number(scaled("surge", batch).lr) for batch in (16, 32, 64, 128, 256)]
    assert max(rates) == rates[2]
    assert rates[1] == pytest.approx(rates[3]) and rates[0] == pytest.approx(rates[4])
    assert scaled("surge", 4, reference=1e-6).lr == pytest.approx(2)


def test_the_square_root_rule_of_adams_equation():
    found = scaled("sde", 4, beta1=0.9, beta2=0.999, epsilon=1e-8)
    assert (found.lr, found.epsilon, found.weight_decay) == (2.0, 5e-9, 1.0)
    assert (found.beta1, found.beta2) == pytest.approx((0.6, 0.996))


def test_beta2_of_batch_512_at_batch_1():
    assert scaled("half-life", 1 / 512, beta2=0.95).beta2 == pytest.approx(0.9999, abs=5e-6)


def test_beta1_of_batch_4_at_batch_32_and_over_eight_times_the_tokens():
    start = Hyperparameters(256, beta1=0.9)
    assert SCALINGS["momentum"](start, Change(2048)).beta1 == pytest.approx(0.430, abs=5e-4)
    assert SCALINGS["momentum"](start, Change(2048, horizon=8)).beta1 == pytest.approx(0.9)


def test_filatovs_rate_along_its_best_batch_falls_as_its_equation_says():
    start = Hyperparameters(2**18, 1e-3)
    found = SCALINGS["filatov"](start, Change(2**18 * 64**0.45, horizon=64))
    assert math.log(number(found.lr) / 1e-3, 64) == pytest.approx(-0.28, abs=0.005)


def test_the_timescale_is_kept_by_a_decay_that_grows_32_times():
    assert scaled("timescale", 2016 / 63).weight_decay == pytest.approx(32)


def test_nanochat_keeps_the_timescale_while_the_rate_follows_the_root():
    start = Hyperparameters(2**19, 0.02, weight_decay=0.28)
    found = SCALINGS["nanochat"](start, Change(2**20, horizon=3.0))
    assert found.lr == pytest.approx(0.02 * math.sqrt(2))
    assert found.weight_decay == pytest.approx(0.28 * math.sqrt(2) / 3)
    before, after = (2**19 / (0.02 * 0.28), 2**20 / (number(found.lr) * number(found.weight_decay)))
    assert after / 3 == pytest.approx(before)
