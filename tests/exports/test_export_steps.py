"""Exports to trainers that go by steps, run as the trainers run them: every batch and rate."""

import re
import types

import numpy as np
import pytest

from bss.errors import InputError
from bss.exports import export
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.plan import resolve
from tests.exports.exported import (
    SEQ_LEN,
    TOKENS,
    code_of,
    million,
    plan_arrays,
    plan_batches,
)

MICRO = 4


def sampled(plan, every):
    """Steps at every boundary and about it, and others between."""
    edges = [s.start_step + d for s in plan.segments for d in (-1, 0, 1)]
    return sorted({*edges, *range(0, plan.steps, every), plan.steps - 1} & set(range(plan.steps)))


@pytest.mark.parametrize("trainer", ["huggingface", "deepspeed"])
@pytest.mark.parametrize(
    ("shape", "floor"), [("1-sqrt", 0.1), ("linear", 0.0), ("cosine", 0.0), ("exponential", 0.01)]
)
def test_callbacks_have_the_rate_of_the_plan(trainer, shape, floor):
    plan = million(shape, floor, Coupling(lr="sqrt", reference_batch=8))
    code, (batch, rate) = code_of(export(plan, trainer)), plan_arrays(plan)
    steps = sampled(plan, 997)
    np.testing.assert_array_equal([code.batch(step) for step in steps], batch[steps])
    np.testing.assert_allclose([code.rate(step) for step in steps], rate[steps], rtol=1e-12)
    assert [plan.at(step).settings.lr for step in steps[:50]] == pytest.approx(rate[steps[:50]])


def trained_batches(code, steps):
    """What Trainer makes of the callback: it steps where its count of micro-batches is a multiple
    of those accumulated, which the callback sets after each step."""
    args, state = types.SimpleNamespace(), types.SimpleNamespace(global_step=0)
    callback, count, batches = code.FollowPlan(MICRO), 0, []
    callback.on_train_begin(args, state, None)
    for _ in range(steps):
        ended = (count // args.gradient_accumulation_steps + 1) * args.gradient_accumulation_steps
        batches.append((ended - count) * MICRO)
        count, state.global_step = ended, state.global_step + 1
        callback.on_step_end(args, state, None)
    return batches


@pytest.mark.slow
def test_the_trainer_takes_every_batch_of_a_million_steps():
    plan = million()
    batches = trained_batches(code_of(export(plan, "huggingface")), plan.steps)
    np.testing.assert_array_equal(batches, plan_arrays(plan)[0])


def test_the_engine_of_deepspeed_takes_the_batches():
    plan = million()
    code, set_to = code_of(export(plan, "deepspeed")), []
    engine = types.SimpleNamespace(global_steps=0, train_batch_size=lambda: (set_to or [8])[-1])
    engine.set_train_batch_size = set_to.append
    for step in sampled(plan, 9973):
        engine.global_steps = step
        code.follow(engine)
        assert engine.train_batch_size() == plan.at(step).batch
    assert set_to == [16, 32]


def test_a_switch_that_is_no_multiple_of_the_batch_is_told():
    plan = resolve(BatchSchedule.parse("0:8 9K:16"), 100_000, SEQ_LEN)  # after 72 sequences
    says = 'cannot switch to 16 after 72 sequences.*--batch "0:8 10240:16"'
    with pytest.raises(InputError, match=says):
        export(plan, "huggingface")
    aligned = resolve(BatchSchedule.parse("0:8 10240:16"), 100_000, SEQ_LEN)
    text = export(aligned, "deepspeed")
    assert "cannot switch" not in text
    code = code_of(export(aligned, "huggingface"))
    assert trained_batches(code, aligned.steps) == plan_batches(aligned)


def settings_of(text):
    return dict(re.findall(r"^(\w+): ([^ \n]+)", text, flags=re.MULTILINE))


def maxtext_batches(settings, steps):
    """As MaxText's RampupBatchManager counts, on one device."""
    last, start, increment = (
        int(float(settings[name]))
        for name in (
            "per_device_batch_size", "per_device_batch_size_start",
            "per_device_batch_size_increment",
        )
    )  # fmt: skip
    share = int(settings["global_rampup_samples"]) / ((last - start) // increment)
    batches, batch, used = [], start, 0
    for _ in range(steps):
        batches.append(batch)
        used += batch
        if used >= share:
            batch, used = min(batch + increment, last), 0
    return batches


def maxtext_rates(settings, steps):
    """As MaxText's create_learning_rate_schedule, at every step."""
    peak, final = (float(settings[n]) for n in ("learning_rate", "learning_rate_final_fraction"))
    warmup = int(steps * float(settings["warmup_steps_fraction"]))
    decay = int(steps * float(settings["wsd_decay_steps_fraction"]))
    at = np.arange(steps)
    rate = np.where(at < warmup, at / max(warmup, 1), 1.0)
    part = np.clip((at - (steps - decay)) / (decay - 1), 0, 1)
    fall = 1 - part if settings["wsd_decay_style"] == "linear" else (1 + np.cos(np.pi * part)) / 2
    return peak * rate * np.where(at >= steps - decay, final + (1 - final) * fall, 1.0)


@pytest.mark.parametrize("text", ["0:8 800M:16", "0:8 800M:24", "0:8 250880000:16 501760000:24"])
def test_maxtext_ramps_as_the_plan(text):
    plan = resolve(BatchSchedule.parse(text), TOKENS, SEQ_LEN)
    settings = settings_of(export(plan, "maxtext"))
    np.testing.assert_array_equal(
        maxtext_batches(settings, plan.steps),
        np.repeat([s.batch for s in plan.segments], [s.steps for s in plan.segments]),
    )


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_maxtext_has_the_rate_of_a_constant_batch(shape):
    rate = rates.wsd(4e-3, 8 * SEQ_LEN * 10**6, 8 * SEQ_LEN * 2000, 8 * SEQ_LEN * 10**5, shape)
    plan = resolve(BatchSchedule.constant(8), 8 * SEQ_LEN * 10**6, SEQ_LEN, rate=rate)
    text = export(plan, "maxtext")
    found = maxtext_rates(settings_of(text), plan.steps)
    # the start of a step beside its middle: half a step of the warm-up or of the decay
    np.testing.assert_allclose(found, plan_arrays(plan)[1], rtol=0, atol=4e-3 * 0.51 / 2000)
    after = found[2000:] - plan_arrays(plan)[1][2000:]
    assert np.abs(after).max() < 4e-3 * 0.8 * np.pi / 10**5


@pytest.mark.parametrize(
    ("trainer", "text", "says"),
    [
        ("huggingface", "0:16 2048000:8", "The batch shrinks"),
    ],
)
def test_what_they_cannot_do_is_said(trainer, text, says):
    assert says in export(resolve(BatchSchedule.parse(text), 10**7, SEQ_LEN), trainer)
