"""Weight averages: against NumPy in float64, through batch changes, and in a run."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.loop import train
from bss.training.run_config import half_life
from bss.training.run_directory import read_curve
from bss.training.step import State, ema_rates, empty_averages, select_average, update_averages

HALF_LIVES = ("400", "5%", "50%")


def test_the_bank_equals_explicit_weights_through_batch_changes():
    draw = np.random.default_rng(0)
    batch_tokens = [32] * 20 + [64] * 20 + [128] * 10
    ends = np.cumsum(batch_tokens)
    values = draw.normal(size=(len(ends), 3)).astype(np.float32)
    averages = empty_averages({"w": jnp.zeros(3)}, len(HALF_LIVES))
    move = jax.jit(update_averages)  # takes the rates as NumPy, as a step does
    for value, end, tokens in zip(values, ends, batch_tokens, strict=True):
        averages = move(averages, {"w": value}, ema_rates(HALF_LIVES, int(end), tokens))
    for index, text in enumerate(HALF_LIVES):
        lives = np.array([half_life(text, int(end)) for end in ends])
        tau = 2.0 ** (-np.array(batch_tokens) / lives)
        weight = np.array([(1 - tau[i]) * np.prod(tau[i + 1 :]) for i in range(len(tau))])
        expected = weight @ values / weight.sum()
        got = select_average(averages, jnp.int32(index))["w"]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_one_step_seen_is_that_step():
    averages = empty_averages({"w": jnp.zeros(2)}, 1)
    averages = update_averages(
        averages, {"w": jnp.array([3.0, 4.0])}, jnp.asarray(ema_rates(("1T",), 64, 64))
    )
    np.testing.assert_allclose(select_average(averages, jnp.int32(0))["w"], [3.0, 4.0], rtol=1e-6)


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "nan%", "x", "-5K", "%"])
def test_bad_half_lives_are_refused(tiny_run, text):
    with pytest.raises(InputError, match=r"averages|half"):
        dataclasses.replace(tiny_run, averages=(text,))


@pytest.fixture(scope="module")
def averaged(tiny_run, execution_in, tmp_path_factory):
    """A run at a high rate with a weight average, its status and its curve."""
    execution = execution_in(tmp_path_factory.mktemp("averaged"))
    run = overlay(tiny_run, {"averages": ["4%"], "optimizer.lr": 0.1, "schedule.batch": "2"})
    run = overlay(run, {"evaluation.test_tokens": 320})
    return run, train(run, execution), read_curve(Path(execution.runs) / run.id)


@pytest.mark.slow
def test_a_run_reports_its_averages_and_they_are_better_at_a_high_rate(averaged):
    _, status, rows = averaged
    assert all("eval_loss_avg_4%" in row for row in rows)
    assert rows[-1]["eval_loss_avg_4%"] < rows[-1]["eval_loss"]
    assert status.losses["test_loss_avg_4%"] < status.losses["test_loss"]
    assert status.losses["eval_loss_avg_4%"] == rows[-1]["eval_loss_avg_4%"]


@pytest.mark.slow
def test_averages_leave_the_trajectory_alone(averaged, tiny_execution):
    run, _, rows = averaged
    bare = overlay(run, {"averages": [], "schedule.tokens": 2048})
    assert bare.id != run.id
    train(bare, tiny_execution)
    *plain, _ = read_curve(Path(tiny_execution.runs) / bare.id)  # the last stands at its end
    assert len(plain) >= 5
    for row, same in zip(plain, rows, strict=False):
        assert same["tokens"] == row["tokens"]
        assert same["eval_loss"] == pytest.approx(row["eval_loss"], rel=1e-5)


def test_a_branch_needs_its_parents_averages(tiny_run, tiny_execution):
    fork = 512
    execution = dataclasses.replace(tiny_execution, forks=(fork,))
    train(overlay(tiny_run, {"schedule.tokens": fork}), execution)
    branch = overlay(
        tiny_run, {"averages": ["20%"], "parent": {"run": tiny_run.id, "tokens": fork}}
    )
    with pytest.raises(InputError, match="averages differs"):
        train(branch, execution)


def test_the_state_has_no_bank_where_none_is_asked_for(tiny_run):
    from bss.training.step import init_state

    state: State = jax.eval_shape(lambda: init_state(tiny_run))
    assert state.averages is None
