"""Traps of a design: equal steps, rates tuned at one batch or at some more than at others."""

import numpy as np
import pandas as pd
import pytest

from bss.points.curve import points
from bss.points.measuring import design_warnings, tuned_points
from bss.tables import check_runs
from bss.tables.schema import check_points


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


def measured(batches, **columns):
    """Checked points of some batch sizes at each target."""
    rows = [
        {"target_loss": loss, "batch": b, "seq_len": 64, "steps": 9000 / b + 90, **columns}
        for loss, sizes in batches.items()
        for b in sizes
    ]
    return check_points(pd.DataFrame(rows))


def test_targets_of_different_batch_sizes_are_told():
    _, told = tuned_points(measured({2.0: (4, 8, 16), 1.8: (16, 32), 1.6: (32, 64), 1.4: (8, 32)}))
    assert told == [
        "target losses have different batch sizes: 1.4 (at 8, 32), 1.6 (at 32, 64), 1.8 (at 16, "
        "32) and 1 more; only batch sizes of one target are compared, so measure each to the same "
        "target"
    ]
    assert tuned_points(measured({2.0: (4, 8, 16), 1.8: (4, 8), 1.6: (8,)}))[1] == []
    models = [measured({2.0: (4, 8)}, model="a"), measured({1.8: (16, 32)}, model="b")]
    assert tuned_points(pd.concat(models, ignore_index=True))[1] == []
