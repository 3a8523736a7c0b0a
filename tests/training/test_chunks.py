"""How many steps come at once: up to an event, and as many as their FLOPs allow."""

from types import SimpleNamespace

import pytest

from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.training.batches import (
    DISPATCH_FLOPS,
    MAX_STEPS,
    max_steps_per_dispatch,
    step_capacity,
    step_chunks,
)
from bss.training.execution import Execution
from bss.training.sharding import make_mesh

PLAN = resolve(BatchSchedule.parse("0:1 4K:2"), 10_000, 10)
"""400 steps of 10 tokens, then 300 of 20."""
EVENTS = frozenset((1_000, 4_000, 10_000))


@pytest.mark.parametrize(("first", "steps"), [(0, 100), (37, 10), (390, 100)])
def test_they_cover_the_steps_and_end_at_events(first, steps):
    chunks = [*step_chunks(PLAN, first, EVENTS, MAX_STEPS, DISPATCH_FLOPS / (10 * steps))]
    assert [k for steps in chunks for k in steps] == [*range(first, PLAN.steps)]
    ends = {PLAN.tokens_at(steps[-1] + 1) for steps in chunks}
    assert {e for e in EVENTS if e > PLAN.tokens_at(first)} <= ends
    for steps in chunks:
        assert len({PLAN.at(k).batch for k in steps}) == 1


def test_the_number_of_steps_follows_from_the_plan():
    def longest(most, allowed):
        """Of each batch, at as many FLOPs a token as allow so many steps of batch 1."""
        found, flops = {}, DISPATCH_FLOPS / (10 * allowed) if allowed else 0.0
        for steps in step_chunks(PLAN, 0, EVENTS, most, flops):
            batch = PLAN.at(steps[0]).batch
            found[batch] = max(found.get(batch, 0), len(steps))
        return found

    assert longest(MAX_STEPS, 30.1) == {1: 30, 2: 15}
    assert longest(MAX_STEPS, 1e6) == {1: MAX_STEPS, 2: MAX_STEPS}
    assert longest(MAX_STEPS, 0.1) == longest(1, 1e6) == {1: 1, 2: 1}
    assert longest(5, 0) == {1: 5, 2: 5}
    first = [*step_chunks(PLAN, 0, EVENTS, MAX_STEPS, 1e6)]
    assert first == [*step_chunks(PLAN, 0, EVENTS, MAX_STEPS, 1e6)]


def test_one_cpu_takes_many_by_itself_and_others_one():
    one, two = make_mesh(1), make_mesh(2)
    assert max_steps_per_dispatch(Execution(), one) == MAX_STEPS
    assert max_steps_per_dispatch(Execution(steps_per_dispatch=5), one) == 5
    assert (
        max_steps_per_dispatch(Execution(), two)
        == max_steps_per_dispatch(Execution(steps_per_dispatch=5), two)
        == 1
    )
    assert max_steps_per_dispatch(Execution(checkpoint_seconds=0), one) == 1
    assert max_steps_per_dispatch(Execution(steps_per_dispatch=1000), one) == MAX_STEPS
    gpu = SimpleNamespace(size=1, devices=SimpleNamespace(flat=[SimpleNamespace(platform="gpu")]))
    assert max_steps_per_dispatch(Execution(), gpu) == 1


def test_one_cpu_has_one_program_for_every_number_of_steps():
    one = make_mesh(1)
    executions = [Execution(steps_per_dispatch=steps) for steps in (0, 1, 2, 5, MAX_STEPS, 1000)]
    executions.append(Execution(checkpoint_seconds=0))
    assert {step_capacity(execution, one) for execution in executions} == {MAX_STEPS}
    two = make_mesh(2)
    assert {step_capacity(execution, two) for execution in executions} == {1}
    gpu = SimpleNamespace(size=1, devices=SimpleNamespace(flat=[SimpleNamespace(platform="gpu")]))
    assert step_capacity(Execution(), gpu) == 1
    assert step_capacity(Execution(steps_per_dispatch=5), gpu) == 5
