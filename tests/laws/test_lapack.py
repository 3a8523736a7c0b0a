"""Intervals do not depend on the signs of eigenvectors and singular vectors.

LAPACK chooses these signs, and versions of LAPACK differ.
"""

from importlib.resources import files

import numpy as np
import pytest

from bss.laws import fit_critical
from bss.laws.base import Options
from bss.laws.minimum import measured_minimum
from bss.laws.resampling import symmetric_root
from bss.tables import read_points

BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]


def flip_signs(monkeypatch):
    """Negate every second eigenvector, and pair of singular vectors."""
    eigh = np.linalg.eigh
    svd = np.linalg.svd

    def flipped_eigh(matrix):
        values, vectors = eigh(matrix)
        vectors[:, ::2] *= -1
        return values, vectors

    def flipped_svd(matrix, *args, **settings):
        left, values, right = svd(matrix, *args, **settings)
        left[:, ::2] *= -1
        right[::2] *= -1
        return left, values, right

    monkeypatch.setattr(np.linalg, "eigh", flipped_eigh)
    monkeypatch.setattr(np.linalg, "svd", flipped_svd)


def critical_interval():
    points = read_points(str(files("bss.laws") / "published" / "cbs_steps.csv"))
    fit = fit_critical(points, reference=256, options=Options(resamples=20))
    return [end for at in fit.fits for end in (at.cbs.low, at.cbs.high)]


def measured_interval():
    x = np.log([4.0, 8, 16, 32, 64, 128]) - np.log(20)
    noise = 0.003 * np.random.default_rng(0).standard_normal(6)
    best = measured_minimum(20 * np.exp(x), 0.02 * x**2 + noise, typical=0.003).batch
    return [best.low, best.high]


@pytest.mark.parametrize("interval", [critical_interval, measured_interval])
def test_other_signs_give_the_same_interval(interval, monkeypatch):
    expected = interval()
    flip_signs(monkeypatch)
    assert interval() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 1.0, 4.0)])
def test_the_root_is_unique(values, monkeypatch):
    """Two eigenvalues are equal in the second covariance: LAPACK chooses their axes, too."""
    root = BASIS * np.sqrt(values) @ BASIS.T
    covariance = root @ root
    np.testing.assert_allclose(symmetric_root(covariance), root, atol=1e-7)
    axes = -BASIS
    if values[1] == values[2]:
        axes[:, 1:3] @= np.array([[0.6, -0.8], [0.8, 0.6]])
    monkeypatch.setattr(np.linalg, "eigh", lambda _: (np.array(values), axes))
    np.testing.assert_allclose(symmetric_root(covariance), root, atol=1e-12)


def test_rounding_below_zero_is_zero():
    assert np.isfinite(symmetric_root(np.diag([-1e-18, 1.0]))).all()
