"""Intervals of planted last crossings, over 100 sets of each kind."""

import numpy as np
import pytest

from bss.laws.ramps.branches import fit_branches
from bss.policies.from_noise import noise_ramp
from tests.laws.ramps.planted_ramps import planted_branches, planted_noise, true_crossing

pytestmark = pytest.mark.slow  # about 12 CPU seconds
SETS = 100


def holds(at, truth, first):
    """Whether an interval holds a crossing, which may be before the first point."""
    return at.low <= truth <= at.high or (truth == 0 and at.low <= first)


def test_intervals_of_a_noise_scale():
    held = []
    for number in range(SETS):
        table, true = planted_noise(number)
        ends = (table["tokens"].max(), table["tokens"].min())
        for one in noise_ramp(table).switches:
            if one.tokens.value is not None:
                level = np.log(one.batch_tokens)
                truth = true_crossing(true, lambda v, level=level: np.log(v) - level, *ends)
                held.append(holds(one.tokens, truth, ends[1]))
    assert len(held) > 200
    assert 0.83 <= np.mean(held) <= 0.97


def test_intervals_of_branches():
    held = []
    for number in range(SETS):
        table, true = planted_branches(number)
        ends = (table["fork"].max(), table["fork"].min())
        fit = fit_branches(table)
        for one in fit.grown:
            if one.tokens.value is not None:
                penalty = true[int(one.batch)]
                truth = true_crossing(penalty, lambda v: 0.02 - v, *ends)
                held.append(holds(one.tokens, truth, ends[1]))
    assert len(held) > 80
    assert 0.83 <= np.mean(held) <= 0.97


def test_flat_curves_have_no_number():
    """Scatter alone passes a level for good in at most 5 of 100 sets."""
    noise = [noise_ramp(planted_noise(1000 + i, flat=True)[0]) for i in range(SETS)]
    assert sum(any(s.tokens.value is not None for s in one.switches) for one in noise) <= 5
    branches = [fit_branches(planted_branches(1001 + 2 * i, flat=True)[0]) for i in range(SETS)]
    assert sum(any(g.tokens.value is not None for g in one.grown) for one in branches) <= 5
