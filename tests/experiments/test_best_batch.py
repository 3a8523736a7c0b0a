"""Data against model size: planted best batches, and what the published table shows."""

import numpy as np
import pandas as pd
import pytest

from experiments.critical_batch import best_batch


def planted(in_size, in_data, scatter=0.1):
    """Best batches of five sizes at three budgets each."""
    draw = np.random.default_rng(0)
    params, ratio = np.repeat(2.0 ** np.arange(5) * 1e8, 3), np.tile([20.0, 60.0, 180.0], 5)
    best = pd.DataFrame({"params": params, "tokens": params * ratio})
    batch = 1e5 * (params / 1e8) ** in_size * (best["tokens"] / 1e9) ** in_data
    batch = batch * np.exp(scatter * draw.normal(size=len(best)))
    ends = {"low": batch / 1.2, "high": batch * 1.2, "least_tokens": batch}
    return best.assign(batch_tokens=batch, **ends)


def test_every_cell_of_the_published_table_has_an_interior_best_batch():
    best = best_batch.cells()
    assert len(best) == 17
    low, batch, high = best[["low", "batch_tokens", "high"]].to_numpy(float).T
    assert np.all(low < batch) and np.all(batch < high)
    law = best_batch.laws(best.assign(source=best_batch.BEST, definition=""))[best_batch.BEST]
    assert [one.value for one in law.exponents] == pytest.approx([-0.2897, 0.6376], abs=1e-3)
