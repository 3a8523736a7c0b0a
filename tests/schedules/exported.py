"""A plan of more than a million steps, and what its exports say."""

import re
import types

import numpy as np

from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.plan import Plan, resolve

SEQ_LEN = 128
TOKENS = 2_000_000_000
SCHEDULE = "0:8 800M:16 1.4B:32"  # switches at multiples of the new batch


def million(
    shape: rates.Shape = "1-sqrt",
    floor: float = 0.1,
    coupling: Coupling | None = None,
    schedule: str = SCHEDULE,
) -> Plan:
    rate = rates.wsd(4e-3, TOKENS, 20_480_000, 500_000_000, shape, floor)
    plan = resolve(BatchSchedule.parse(schedule), TOKENS, SEQ_LEN, rate=rate, coupling=coupling)
    assert plan.steps > 10**6
    return plan


def plan_arrays(plan: Plan, part: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Batch of every step and the rate at a part of it, the middle by default, all at once."""
    steps = [segment.steps for segment in plan.segments]
    batch = np.repeat([segment.batch for segment in plan.segments], steps)
    size = batch * plan.seq_len
    scales = [plan.coupling.settings(1.0, s.batch, plan.seq_len).lr for s in plan.segments]
    assert plan.rate is not None
    return batch, plan.rate(np.cumsum(size) - (1 - part) * size) * np.repeat(scales, steps)


def plan_batches(plan: Plan) -> list[int]:
    return [plan.at(step).batch for step in range(plan.steps)]


def code_of(text: str) -> types.SimpleNamespace:
    """What the text defines, without the libraries that it imports."""
    kept = [line for line in text.splitlines() if not re.match(r"from (torch|transformers)", line)]
    names = {"TrainerCallback": object}
    exec("\n".join(kept), names)
    return types.SimpleNamespace(**names)
