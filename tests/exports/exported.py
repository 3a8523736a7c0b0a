"""Plans of more than a million steps and of 44 steps, and what their exports say."""

import re
import types
from typing import Any

import numpy as np
import pytest

from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.plan import Plan, resolve

SEQ_LEN = 128
TOKENS = 2_048_000_000
SCHEDULE = "0:8 819.2M:16 1.4336B:32"  # switches at multiples of the new batch
SHORT = 1_024_000  # a thousand steps of 8
EDGES: dict[str, tuple[str, rates.WarmupStableDecay]] = {
    "no warm-up": ("0:8", rates.constant(4e-3)),
    "warm-up throughout": ("0:8", rates.constant(4e-3, SHORT)),
    "warm-up and decay alone": ("0:8", rates.cosine(4e-3, SHORT, 102_400)),
    "decay alone": ("0:8", rates.wsd(4e-3, SHORT, 0, SHORT)),
    "ramp in the warm-up": ("0:8 40960:16", rates.constant(4e-3, 81_920)),
}


def installed(module: str) -> Any:
    """A module of a trainer; the test is skipped where it is not installed."""
    return pytest.importorskip(module, exc_type=ImportError)


def edge(name: str) -> Plan:
    schedule, rate = EDGES[name]
    return resolve(BatchSchedule.parse(schedule), SHORT, SEQ_LEN, rate=rate)


def million(
    shape: rates.Shape = "1-sqrt",
    floor: float = 0.1,
    coupling: Coupling | None = None,
    schedule: str = SCHEDULE,
) -> Plan:
    rate = rates.wsd(4e-3, TOKENS, 20_480_000, 512_000_000, shape, floor)
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


def small() -> Plan:
    """A plan of 44 steps, whose batch doubles twice after the warm-up and before the decay."""
    rate = rates.wsd(1e-2, 300 * 16, 40 * 16, 60 * 16)
    return resolve(BatchSchedule.parse("0:4 1664:8 3328:16"), 300 * 16, 16, rate=rate)


def executed(text: str) -> types.SimpleNamespace:
    """What the text defines."""
    names = {"__name__": "pasted"}
    exec(text, names)
    return types.SimpleNamespace(**names)


def rates_of(plan: Plan) -> list[float]:
    return [plan.at(step).settings.lr for step in range(plan.steps)]
