"""How many steps come at once: up to an event, and as many as last seconds."""

from types import SimpleNamespace

import pytest

from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.training.devices.mesh import make_mesh
from bss.training.execution import Execution
from bss.training.running.stretches import SECONDS, STEPS, Stretches, steps_at_once

PLAN = resolve(BatchSchedule.parse("0:1 4K:2"), 10_000, 10)
"""400 steps of 10 tokens, then 300 of 20."""
EVENTS = frozenset((1_000, 4_000, 10_000))


def taken(stretches: Stretches, seconds: float) -> list[range]:
    """Every stretch of a device that takes so long for a step."""
    all_ = []
    for steps in stretches:
        all_.append(steps)
        stretches.took(PLAN.at(steps[0]).batch, len(steps), len(steps) * seconds)
    return all_


@pytest.mark.parametrize(("first", "seconds"), [(0, 1e-6), (37, 0.1), (390, 1e-6)])
def test_they_cover_the_steps_and_end_at_events(first, seconds):
    stretches = taken(Stretches(PLAN, first, EVENTS, STEPS), seconds)
    assert [k for steps in stretches for k in steps] == [*range(first, PLAN.steps)]
    ends = {PLAN.tokens_at(steps[-1] + 1) for steps in stretches}
    assert {e for e in EVENTS if e > PLAN.tokens_at(first)} <= ends
    for steps in stretches:
        assert len({PLAN.at(k).batch for k in steps}) == 1


def test_a_run_begins_alone_and_goes_on_by_how_long_it_took():
    stretches = taken(Stretches(PLAN, 0, EVENTS, STEPS), 0.1)
    lengths = [len(steps) for steps in stretches]
    assert lengths[:3] == [1, SECONDS / 0.1, SECONDS / 0.1]
    at = [steps[0] for steps in stretches].index(400)  # a batch twice as large
    assert lengths[at : at + 2] == [SECONDS / 0.2, SECONDS / 0.1]
    assert max(lengths) == SECONDS / 0.1
    assert max(map(len, taken(Stretches(PLAN, 0, EVENTS, STEPS), 1e-6))) == STEPS
    assert max(map(len, taken(Stretches(PLAN, 0, EVENTS, STEPS), 60.0))) == 1
    assert max(map(len, taken(Stretches(PLAN, 0, EVENTS), 1e-6))) == 1


def test_one_cpu_takes_many_by_itself_and_others_one():
    one, two = make_mesh(1), make_mesh(2)
    assert steps_at_once(Execution(), one) == STEPS
    assert steps_at_once(Execution(steps=5), one) == 5
    assert steps_at_once(Execution(), two) == steps_at_once(Execution(steps=5), two) == 1
    assert steps_at_once(Execution(checkpoint_seconds=0), one) == 1
    gpu = SimpleNamespace(size=1, devices=SimpleNamespace(flat=[SimpleNamespace(platform="gpu")]))
    assert steps_at_once(Execution(), gpu) == 1  # pyright: ignore[reportArgumentType]
