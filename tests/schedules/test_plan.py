import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bss.errors import InputError
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.plan import Segment, resolve


@st.composite
def cases(draw):
    """A schedule with stages also shorter than a step, a budget, a length and a start."""
    starts = [0, *sorted(draw(st.sets(st.integers(1, 3000), max_size=6)))]
    batches = [draw(st.integers(1, 24)) for _ in starts]
    seq_len, start = draw(st.integers(1, 16)), draw(st.integers(0, 1000))
    schedule = BatchSchedule(tuple(starts), tuple(batches))
    least = start + schedule(start) * seq_len
    return schedule, draw(st.integers(least, least + 4000)), seq_len, start


def naive_steps(schedule, tokens, seq_len, start):
    """(position, batch) of every step, one by one."""
    steps, position = [], start
    while position + schedule(position) * seq_len <= tokens:
        steps.append((position, schedule(position)))
        position += steps[-1][1] * seq_len
    return steps, position


@settings(deadline=None)
@given(cases())
def test_every_step_is_that_of_a_loop(case):
    schedule, tokens, seq_len, start = case
    steps, end = naive_steps(*case)
    rate = rates.wsd(1.0, tokens, tokens // 4, tokens // 2)
    plan = resolve(schedule, tokens, seq_len, start=start, rate=rate)
    assert (plan.steps, plan.tokens) == (len(steps), end)
    assert plan.remainder_tokens == tokens - end
    assert sum(s.steps * s.batch * seq_len for s in plan.segments) + start == end
    for number, (position, batch) in enumerate(steps):
        spec = plan.at(number)
        assert (spec.step, spec.tokens, spec.batch) == (number, position, batch)
        assert spec.settings.lr == rate(position + batch * seq_len / 2)
    positions = [*(position for position, _ in steps), end]
    assert plan.tokens_at_each(np.arange(plan.steps + 1)).tolist() == positions
    for before, after in zip(plan.segments, plan.segments[1:], strict=False):
        assert before.end_tokens == after.start_tokens and before.batch != after.batch
        assert before.start_step + before.steps == after.start_step
    for segment in plan.segments:
        last = segment.start_step + segment.steps - 1
        assert segment.lr_start == plan.at(segment.start_step).settings.lr
        assert segment.lr_end == plan.at(last).settings.lr


@settings(deadline=None)
@given(cases(), st.data())
def test_steps_and_tokens_are_inverse(case, data):
    schedule, tokens, seq_len, start = case
    plan = resolve(schedule, tokens, seq_len, start=start)
    boundaries = [position for position, _ in naive_steps(*case)[0]] + [plan.tokens]
    assert [plan.tokens_at(step) for step in range(plan.steps + 1)] == boundaries
    assert [plan.step_at(boundary) for boundary in boundaries] == list(range(plan.steps + 1))
    position = data.draw(st.integers(start, tokens))
    assert plan.step_at(position) == sum(boundary <= position for boundary in boundaries) - 1
    after = [boundary for boundary in boundaries if boundary >= position]
    assert plan.next_boundary(position) == (after[0] if after else plan.tokens)


def test_the_whole_plan_of_three_stages():
    plan = resolve(
        BatchSchedule.parse("0:8 2M:16 6M:32"),
        10_000_000,
        128,
        rate=rates.wsd(4e-3, 10_000_000, 200_000, 2_000_000),
    )
    assert plan.to_dict() == {
        "segments": [
            {"start_tokens": 0, "end_tokens": 2_000_896, "batch": 8, "steps": 1954,
             "lr_start": 4e-3 * (512 / 200_000), "lr_end": 4e-3},
            {"start_tokens": 2_000_896, "end_tokens": 6_000_640, "batch": 16, "steps": 1953,
             "lr_start": 4e-3, "lr_end": 4e-3},
            {"start_tokens": 6_000_640, "end_tokens": 9_998_336, "batch": 32, "steps": 976,
             "lr_start": 4e-3,
             "lr_end": pytest.approx(4e-3 * (10_000_000 - 9_996_288) / 2_000_000, rel=1e-12)},
        ],
        "steps": 4883,
        "tokens": 9_998_336,
        "remainder_tokens": 1664,
        "devices": 8,
    }  # fmt: skip
    assert json.loads(json.dumps(plan.to_dict())) == plan.to_dict()
    assert plan.segments[0] == Segment(0, 2_000_896, 8, 1954, 0, 4e-3 * 512 / 200_000, 4e-3, 128)


def test_ten_trillion_tokens_are_exact():
    budget = 10**13
    starts = tuple((budget // 11 + 1) * i for i in range(11))
    schedule = BatchSchedule(starts, tuple(2**i for i in range(11)))
    plan = resolve(schedule, budget, 2047, rate=rates.wsd(1.0, budget, 10**9, 10**12))
    assert len(plan.segments) == 11
    assert sum(s.steps * s.batch * 2047 for s in plan.segments) + plan.remainder_tokens == budget
    for step in (0, 1, plan.segments[5].start_step - 1, plan.segments[5].start_step, plan.steps):
        assert plan.step_at(plan.tokens_at(step)) == step
        if step:
            assert plan.step_at(plan.tokens_at(step) - 1) == step - 1
    for segment in plan.segments[1:]:
        switch = schedule.starts[schedule.batches.index(segment.batch)]
        assert 0 <= segment.start_tokens - switch < segment.batch // 2 * 2047


def test_a_switch_takes_effect_at_the_first_step_at_or_after_it():
    at, just_before, just_after = (
        resolve(BatchSchedule.late_switch(2, 4, switch), 400, 10).segments[1].start_tokens
        for switch in (100, 99, 101)
    )
    assert (at, just_before, just_after) == (100, 100, 120)


def test_a_stage_within_one_step_is_never_seen():
    plan = resolve(BatchSchedule.parse("0:8 81:2 83:8"), 400, 10)
    assert [(s.batch, s.steps) for s in plan.segments] == [(8, 5)]


def test_a_branch_keeps_the_positions_of_its_trunk():
    schedule = BatchSchedule.parse("0:8 2M:16")
    trunk = resolve(schedule, 3_000_000, 128)
    fork = trunk.next_boundary(1_500_000)
    branch = resolve(schedule, 3_000_000, 128, start=fork)
    first = trunk.step_at(fork)
    assert fork == 1_500_160 and branch.tokens == trunk.tokens
    assert [branch.tokens_at(s) for s in range(branch.steps + 1)] == [
        trunk.tokens_at(first + s) for s in range(branch.steps + 1)
    ]


def test_coupling_reaches_the_step():
    coupling = Coupling(lr="sqrt", reference_batch=8, beta2_half_life=4096)
    plan = resolve(
        BatchSchedule.parse("0:8 8K:32"),
        100_000,
        128,
        rate=rates.constant(1e-3),
        coupling=coupling,
    )
    assert [s.lr_start for s in plan.segments] == [1e-3, 2e-3]
    assert plan.at(plan.steps - 1).settings.beta2 == 0.5
    assert resolve(plan.schedule, 100_000, 128, coupling=coupling).segments[1].lr_end == 2.0


def test_a_first_moment_keeps_a_step_of_the_smallest_batch_or_more():
    schedule, coupling = BatchSchedule.parse("0:8 8K:32"), Coupling(beta1_half_life=1024)
    for start in (0, 8_192):  # a branch of the large batch alone is the plan's too
        plan = resolve(schedule, 100_000, 128, coupling=coupling, start=start)
        assert plan.at(plan.steps - 1).settings.beta1 == 2**-4
    says = "beta1_half_life: 7 given; write a step's 1,024 tokens or more"
    with pytest.raises(InputError, match=says):
        resolve(schedule, 100_000, 128, coupling=Coupling(beta1_half_life=7))


PLAN = resolve(BatchSchedule.constant(8), 10_000, 128)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: resolve(s, 10_000, 0), "seq_len"),
        (lambda s: resolve(s, 0, 128), "tokens"),
        (lambda s: resolve(s, -5, 128), "tokens"),
        (lambda s: resolve(s, 10_000, 128, start=-1), "tokens"),
        (lambda s: resolve(s, 1535, 128), "no step of 12 sequences"),
        (lambda s: resolve(s, 10_000, 128, start=10_000), "no step of 12 sequences"),
        (lambda s: PLAN.at(PLAN.steps), "step: 9 is outside"),
        (lambda s: PLAN.at(-1), "step: -1 is outside"),
        (lambda s: PLAN.tokens_at(PLAN.steps + 1), "step: 10 is outside"),
        (lambda s: PLAN.step_at(10_001), "outside the plan"),
        (lambda s: PLAN.next_boundary(-1), "outside the plan"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(InputError, match=says) as error:
        make(BatchSchedule.constant(12))
    assert "\n" not in str(error.value)


def test_a_rate_may_be_any_callable():
    plan = resolve(BatchSchedule.constant(2), 100, 10, rate=lambda count: math.sqrt(count))
    assert [plan.at(step).settings.lr ** 2 for step in range(5)] == pytest.approx(
        [10, 30, 50, 70, 90]
    )
