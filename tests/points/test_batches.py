"""Constant batches side by side: what planted curves of two seeds say, by hand."""

import numpy as np
import pandas as pd
import pytest

from bss.points.batches import BatchCurve, meetings, seed_bands
from bss.points.curve import Smooth


def curve(batch, seed, first, last):
    """A loss that is a line in log tokens, from 10 to 12."""
    x = np.array([10.0, 12.0])
    fit = Smooth(x, np.array([first, last], float), np.exp(x), np.exp(x) / batch)
    return BatchCurve(batch, pd.DataFrame({"seed": [seed]}), fit)


def test_a_band_is_two_standard_errors_of_paired_differences():
    small = [curve(2, seed, level, level) for seed, level in enumerate((3.0, 3.4))]
    large = [curve(8, seed, level, level) for seed, level in enumerate((3.1, 3.7))]
    bands = seed_bands([*large, *small])
    of_large = bands[bands["batch"] == 8]
    np.testing.assert_allclose(of_large["above"], 0.2)
    np.testing.assert_allclose(of_large["error"], 2 * np.std([0.1, 0.3], ddof=1) / np.sqrt(2))
    np.testing.assert_allclose(of_large[["low", "high"]], [[3.1, 3.7]] * len(of_large))
    assert (bands.loc[bands["batch"] == 2, ["above", "error"]] == 0).all(axis=None)
    assert np.isnan(seed_bands([small[0], large[0]])["error"].to_numpy()).all()


def test_curves_meet_where_each_seed_does_within_two_standard_errors():
    small = [curve(2, seed, 3.0, 3.0) for seed in (0, 1)]
    at = (10.5, 11.5)
    large = [curve(8, seed, 3 + (x - 10), 3 + (x - 12)) for seed, x in enumerate(at)]
    never = [curve(32, seed, 4.0, 4.0) for seed in (0, 1)]
    found = meetings([*small, *large, *never], [(2, 8), (2, 32)])
    assert len(found) == 1
    met = {name: float(found[name].iloc[0]) for name in found}
    assert (met["small"], met["large"], met["loss"]) == (2, 8, pytest.approx(3.0))
    error = 2 * np.std(at, ddof=1) / np.sqrt(2)
    ends = np.log([met[name] for name in ("low", "tokens", "high")])
    np.testing.assert_allclose(ends, [11 - error, 11, 11 + error], atol=0.02)
