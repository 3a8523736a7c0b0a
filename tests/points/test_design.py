"""Traps of a design: equal steps, rates tuned at one batch or at some more than at others."""

import numpy as np
import pandas as pd
import pytest

from bss.points.curve import points
from bss.points.measuring import design_warnings
from bss.tables import check_runs


def told(rates, last=lambda batch: 8000 // batch, seeds=1, scatter=0.0):
    """What is said of runs at each batch's rates and seeds, up to some step."""
    generator, frames = np.random.default_rng(0), []
    for batch, tried in rates.items():
        for rate in tried:
            for seed in range(seeds):
                step = np.linspace(last(batch) // 40, last(batch), 40).astype(int)
                tokens = 8 * batch * step * np.exp(scatter * generator.normal())
                frames.append(
                    pd.DataFrame({"step": step, "loss": 3 - 0.2 * np.log(tokens / 100)}).assign(
                        run=f"{batch}/{rate}/{seed}", batch=batch, lr=rate, seed=seed, seq_len=8
                    )
                )
    runs = check_runs(pd.concat(frames, ignore_index=True))
    return design_warnings(runs, points(runs, [2.0, 1.8]))


@pytest.mark.filterwarnings("ignore:points")
def test_a_fair_design_needs_no_word():
    assert told({2: [1e-3], 4: [2e-3], 8: [2e-3]}) == []
    assert told({2: [1e-3, 2e-3], 4: [1e-3, 2e-3], 8: [1e-3, 2e-3]}) == []


@pytest.mark.filterwarnings("ignore:points")
def test_equal_steps_are_told():
    (warning,) = told({2: [1e-3], 4: [1e-3], 8: [1e-3]}, last=lambda _: 2000)
    assert "the same number of steps (2000)" in warning
    assert told({2: [1e-3], 4: [1e-3]}, last=lambda _: 2000) == []  # two are a pair


@pytest.mark.filterwarnings("ignore:points")
def test_a_rate_tuned_at_one_batch_is_told():
    (warning,) = told({2: [1e-3], 4: [1e-3, 2e-3, 4e-3], 8: [1e-3]}, seeds=3, scatter=0.1)
    assert "batch size 4 (3 LRs)" in warning
    assert "biases B_opt towards it" in warning


@pytest.mark.filterwarnings("ignore:points")
def test_unequal_numbers_of_rates_are_told():
    (warning,) = told({2: [1e-3, 2e-3], 4: [1e-3, 2e-3, 4e-3], 8: [1e-3]}, scatter=0.1)
    assert "1 to 3 LRs (the most at 4)" in warning
    assert "the best of 3 needs" in warning and "biases B_opt towards 4" in warning
