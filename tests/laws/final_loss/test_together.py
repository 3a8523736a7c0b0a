"""Best batches of all (N, D) together: what sharp, vague and silent cells say of one another."""

import numpy as np
import pytest

from bss.laws.final_loss.together import together
from tests.laws.final_loss.known import valley
from tests.laws.golden import assert_golden, numbers

REACH = 1e5, 1.6e6


def cells():
    """Sharp, skewed, at both ends, vague and none."""
    return [
        valley(2e5, spread=0.1),
        valley(3e5, spread=0.3, skew=0.5),
        valley(9e4, spread=0.4),
        None,
        valley(1.5e6, spread=1.5, skew=-0.4),
        valley(8e5, spread=0.15, ends=(2e5, 3.2e6)),
    ]


@pytest.mark.parametrize("name", ["both", "params", "tokens", "neither", "one cell", "silent"])
def test_all_cells_keep_their_numbers(name):
    params = np.array([1e8, 1e8, 2e8, 2e8, 4e8, 4e8])
    tokens = np.array([2e9, 8e9, 4e9, 3e10, 8e9, 6e10])
    if name in ("tokens", "neither"):
        params = params * 0 + 1e8
    if name in ("params", "neither"):
        tokens = 2e10 * np.array([1, 1.01, 1.02, 1, 1.04, 1.0])
    every = {"one cell": cells()[:1], "silent": [None, None]}.get(name, cells())
    count = len(every)
    results = together(params[:count], tokens[:count], every, REACH)
    assert results.law.draws.shape == (200, 2 + len(results.law.variables))
    for x, weight in results.posterior:
        assert weight.sum() == pytest.approx(1) and len(x) in (1001, 8 * 160 + 1)
    means = [(weight @ x, weight @ x**2) for x, weight in results.posterior]
    assert_golden(f"final_loss-together-{name}", numbers([results, means]), rel=1e-5)
