"""The gradient noise scale: planted gradients, batch changes, splitting, resuming, branches."""

import dataclasses
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.loop import Interrupted, train
from bss.training.noise_scale import noise_estimates, noise_rate
from bss.training.optimizers import StepSettings
from bss.training.recorder import TrainPosition
from bss.training.run_config import Parent
from bss.training.run_directory import read_curve
from bss.training.step import (
    Sums,
    accumulate,
    init_state,
    make_step,
)

DIMENSIONS, TRACE, SQUARE = 400, 9.0, 0.25  # B_simple = 36 sequences


def planted_step(draw, bucket: int, buckets: int) -> tuple[float, float]:
    """Squared norms of buckets (their mean) and batch, of gradients with known mean and noise."""
    noise = draw.normal(0, math.sqrt(TRACE / DIMENSIONS), (buckets, bucket, DIMENSIONS))
    gradients = math.sqrt(SQUARE / DIMENSIONS) + noise.mean(1)
    return float((gradients**2).sum(1).mean()), float((gradients.mean(0) ** 2).sum())


@pytest.mark.slow
def test_estimates_are_unbiased_at_every_split():
    draw = np.random.default_rng(0)
    for bucket, buckets in ((1, 2), (4, 2), (2, 8), (1, 32)):
        found = [
            noise_estimates(*planted_step(draw, bucket, buckets), bucket, buckets)
            for _ in range(3000)
        ]
        trace, square = np.mean(found, axis=0)
        error = np.std(found, axis=0) / math.sqrt(len(found))
        assert abs(trace - TRACE) < 4 * error[0] < 0.1 * TRACE
        assert abs(square - SQUARE) < 4 * error[1] < 0.4 * SQUARE


def averaged(position: TrainPosition, trace: float, square: float, tokens: int, half_life: int):
    """A position after a step of these estimates."""
    rate = noise_rate(tokens, half_life)
    return dataclasses.replace(
        position,
        noise_trace=position.noise_trace + rate * (trace - position.noise_trace),
        noise_square=position.noise_square + rate * (square - position.noise_square),
    )


def test_planted_noise_scale_comes_out_through_batch_changes():
    draw, position = np.random.default_rng(1), TrainPosition(0)
    assert position.noise_scale is None
    for bucket, buckets in ((2, 2), (4, 4), (8, 8)):
        for _ in range(1500):
            moments = noise_estimates(*planted_step(draw, bucket, buckets), bucket, buckets)
            position = averaged(position, *moments, 16 * bucket * buckets, 20_000)
        assert position.noise_scale == pytest.approx(TRACE / SQUARE, rel=0.15)


def test_the_averages_weigh_tokens_and_not_steps():
    once, twice = noise_rate(64, 100), 1 - (1 - noise_rate(32, 100)) ** 2
    assert once == pytest.approx(twice)
    assert noise_rate(100, 100) == pytest.approx(0.5)


def test_a_mean_gradient_lost_in_noise_has_no_noise_scale():
    assert TrainPosition(0, noise_trace=1.0, noise_square=-0.1).noise_scale is None


def test_buckets_are_squared_unclipped_and_per_target():
    params = {"w": jnp.zeros(3)}
    sequences = [jnp.full((2, 5), value) for value in (1, 4)]

    def loss_sum(params, sequences_bxT1):  # its gradient per target is the sequences' value
        return jnp.sum(params["w"]) * jnp.sum(sequences_bxT1[:, 1:]), {}

    sums = Sums(params, jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    for bucket in sequences:
        sums = accumulate(loss_sum, params, sums, bucket)
    assert float(sums.squares) == pytest.approx(3 * (1 + 16))
    bare = accumulate(loss_sum, params, Sums(params, jnp.zeros(()), jnp.zeros(())), sequences[0])
    assert bare.squares is None


def test_the_step_is_the_same_with_it(tiny_run):
    measured = overlay(tiny_run, {"noise_scale.half_life": 500})
    width = tiny_run.data.seq_len + 1
    sequences = np.random.default_rng(0).integers(0, 90, (3, 4, width)).astype(np.int32)
    scalars = StepSettings(*map(np.float32, (1e-2, 0.1, 0.05, 0.01)), np.zeros(0, np.float32))  # type: ignore[call-arg]
    start = jax.jit(lambda: init_state(tiny_run))()
    results = [
        jax.jit(make_step(run))(start, sequences, np.int32(3), scalars)
        for run in (tiny_run, measured)
    ]
    assert results[0][1].squares is None
    bare, with_it = (state for state, _ in results)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), bare, with_it)
    metrics = results[1][1]
    trace, square = noise_estimates(float(metrics.squares) / 3, float(metrics.grad_norm) ** 2, 4, 3)
    assert trace > 0 and np.isfinite(square)


def test_it_is_off_by_default_and_renames_nothing(tiny_run):
    assert dataclasses.replace(tiny_run, noise_scale=type(tiny_run.noise_scale)()).id == tiny_run.id
    measured = overlay(tiny_run, {"noise_scale.half_life": 500})
    split = overlay(measured, {"noise_scale.split": True})
    assert len({tiny_run.id, measured.id, split.id}) == 3


def rows(run, execution):
    return read_curve(Path(execution.runs) / run.id)


@pytest.fixture(scope="module")
def measured(tiny_run):
    return overlay(tiny_run, {"noise_scale.half_life": 500})


@pytest.fixture(scope="module")
def whole(measured, execution_in, tmp_path_factory):
    """The uninterrupted run, trained once; buckets 2 and 4 make batches 2, 4 and 8."""
    execution = execution_in(tmp_path_factory.mktemp("whole"), forks=(6016,))
    assert train(measured, execution).recompilations == 0
    return execution


def test_a_batch_of_one_bucket_is_missing(measured, whole):
    for row in rows(measured, whole):
        assert (row["noise_scale"] is None) == (row["tokens"] <= 4096)


@pytest.mark.slow
def test_split_measures_every_batch_above_one(tiny_run, tiny_execution):
    split = {"noise_scale.half_life": 500, "noise_scale.split": True}
    run = overlay(tiny_run, {**split, "schedule.batch": "0:1 1024:4 4096:8"})
    execution = dataclasses.replace(tiny_execution, buckets=(1, 2, 4))
    buckets = [execution.bucket_sizes(run).bucket(s.batch) for s in execution.plan(run).segments]
    assert buckets == [1, 2, 4]
    train(run, execution)
    for row in rows(run, execution):
        assert (row["noise_scale"] is None) == (row["tokens"] <= 1024)
    with pytest.raises(InputError, match="batch: 4 is not two or more buckets of 4, 8; add a"):
        dataclasses.replace(execution, buckets=(4, 8)).plan(overlay(run, {"schedule.batch": "4"}))


@pytest.mark.slow
def test_interrupted_and_resumed_is_bit_identical(
    measured, whole, tiny_execution, stop_after, assert_same_outcome
):
    execution = dataclasses.replace(tiny_execution, forks=whole.forks)
    for asked in (75, 12, 10):  # two of them within the measured batch
        with pytest.raises(Interrupted):
            train(measured, execution, stop=stop_after(asked))
    train(measured, execution)
    assert_same_outcome(measured, execution, measured, whole)


def test_a_branch_goes_on_with_its_parents_averages(measured, whole, assert_same_outcome):
    branch = dataclasses.replace(measured, parent=Parent(measured.id, 6016))
    train(branch, whole)
    assert_same_outcome(
        branch, whole, measured, whole, since=6144
    )  # the row whose loss began before the fork


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise_scale.half_life": -1}, "noise_scale.half_life is -1; expected 0 or more"),
        ({"noise_scale.split": True}, "noise_scale.split is on without a noise_scale.half_life"),
    ],
)
def test_bad_settings_are_refused(tiny_run, changes, told):
    with pytest.raises(InputError, match=told):
        overlay(tiny_run, changes)
