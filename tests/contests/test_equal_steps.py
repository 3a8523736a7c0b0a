"""A run whose batch changed, beside the large batch at equal steps: planted losses."""

import numpy as np
import pandas as pd
import pytest

from bss.contests.equal_steps import gaps_at_equal_steps, mean_curve


def runs(steps, batches, above=0.0, seeds=(0, 1)):
    """Losses 5 - log(step), higher by so much and by a tenth of the seed."""
    table = pd.DataFrame({"step": steps, "batch": batches, "tokens": np.cumsum(batches)})
    frames = [
        table.assign(seed=seed, eval_loss=5 + above + seed / 10 - np.log(steps)) for seed in seeds
    ]
    return pd.concat(frames, ignore_index=True)


def test_gaps_begin_before_the_last_change_and_end_with_the_large_batch():
    run = runs([10, 20, 40, 80, 160, 320], [1, 1, 2, 2, 4, 4], above=0.3, seeds=(0, 1, 2))
    large = runs([15, 30, 60, 200], [4] * 4)
    gaps = gaps_at_equal_steps(run, large)
    assert gaps.index.tolist() == [80, 160]
    assert gaps.columns.tolist() == [0, 1]
    np.testing.assert_allclose(gaps, 0.3)
    whole = gaps_at_equal_steps(runs([20, 40, 300], [4, 4, 4]), runs([10, 300], [4, 4]))
    assert whole.index.tolist() == [20, 40, 300]
    assert gaps_at_equal_steps(run, large.assign(eval_loss=np.nan)).empty
    assert gaps_at_equal_steps(run, runs([15, 30, 60], [4] * 3)).empty


def test_the_mean_curve_is_of_rows_that_every_seed_has():
    table = mean_curve(runs([10, 20], [2, 4]).iloc[:-1])
    assert table["tokens"].tolist() == [2] and table["steps"].tolist() == [10]
    first = table.iloc[0]
    level = 5 - np.log(10)
    assert (first["loss"], first["low"], first["high"]) == pytest.approx(
        (level + 0.05, level, level + 0.1)
    )
