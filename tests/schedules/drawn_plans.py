"""Plans of every size, and the steps at which they are compared."""

import numpy as np

import bss


def drawn_plan(number):
    """A plan of any size: some of a few steps, some of 10^13 tokens or of more than 2^31 steps."""
    draw = np.random.default_rng(number)
    seq_len = int(2 ** draw.integers(0, 12))
    tokens = int(10 ** draw.uniform(4, 13)) + 2000 * seq_len
    starts = sorted({0, *(int(tokens * x) for x in draw.uniform(size=draw.integers(0, 6)))})
    sizes = [int(8 * 2 ** draw.integers(0, 7)) for _ in starts]
    schedule = bss.BatchSchedule(tuple(starts), tuple(sizes))
    lr = bss.wsd(1e-3, tokens, tokens // 50, tokens // 5)
    coupling = bss.Coupling(lr="sqrt", reference_batch=8)
    return bss.plan(schedule, tokens=tokens, seq_len=seq_len, lr=lr, coupling=coupling)


def places(plan):
    """32 steps: at and next to each change, and in between."""
    firsts = [segment.start_step for segment in plan.segments]
    near = [first + shift for first in firsts for shift in (-1, 0, 1)]
    spread = np.linspace(0, plan.steps - 1, 32).astype(int).tolist()
    return [step for step in (*near, *spread) if 0 <= step < plan.steps][:32]
