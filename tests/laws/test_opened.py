"""A fit opened up: a batch left out by hand, a parameter at the fit's own value, residuals."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import check_losses, fit_critical, fit_es, fit_loss
from bss.laws.base import Options
from bss.tables import read_points

DEMO = Path(__file__).parents[2] / "results" / "demo" / "points.csv"
QUICK = Options(resamples=8)


@pytest.fixture(scope="module")
def points():
    points = read_points(DEMO)
    return points.loc[points["target_loss"].isin(np.unique(points["target_loss"])[:3])]


@pytest.fixture(scope="module")
def free(points):
    return fit_es(points, "surface", options=QUICK)


@pytest.mark.slow
def test_a_parameter_at_the_fits_own_value_changes_nothing(points, free):
    own = f"alpha={free.joint['alpha']!r}"
    held = fit_es(points, "surface", constraints=own, options=QUICK)
    assert str(held.constraints) == own
    assert held.joint == pytest.approx(free.joint, rel=1e-6, abs=1e-6)
    assert [at.E_min for at in held.fits] == pytest.approx([at.E_min for at in free.fits], rel=1e-6)
    assert type(held).from_dict(held.to_dict()).constraints == held.constraints
    assert "constraints" not in free.to_dict()


@pytest.mark.slow
def test_a_law_keeps_within_its_bounds(points):
    held = fit_es(points, "surface", constraints="L_0=.8:1", options=QUICK)
    assert held.joint is not None and 0.8 <= held.joint["L_0"] <= 1
    with pytest.raises(InputError, match="k: the surface law "):
        fit_es(points, "surface", constraints="k=1", options=QUICK)


@pytest.mark.slow
def test_a_form_of_final_losses_is_held_too():
    sizes = [(n, d, b) for n in (1e8, 4e8) for d in (2e9, 8e9) for b in (2.0 ** np.arange(15, 20))]
    n, d, b = np.array(sizes).T
    loss = 1.8 + 60 * n**-0.3 + 300 * d**-0.3 + 5e-3 * ((b / 1e5) ** 0.5 + (1e5 / b) ** 0.5)
    table = pd.DataFrame({"params": n, "tokens": d, "batch_tokens": b, "loss": loss})
    table = check_losses(table)
    how = {"forms": ["bowl"], "options": QUICK}
    free = fit_loss(table, **how)
    value = free.parameters["q"].value
    held = fit_loss(table, **how, constraints=f"q={value!r}")
    np.testing.assert_allclose(held.losses(n, d, b), free.losses(n, d, b), rtol=1e-4)
    assert held.parameters["q"].value == pytest.approx(value)
    with pytest.raises(InputError, match="this table's law has no such parameter"):
        fit_loss(table, **how, constraints="alpha=1")
    found = held.residuals()
    assert {"log_batch_over_best", "measured"} <= {*found} and held.RESIDUAL_UNIT == "nats"
    np.testing.assert_allclose(found["residual"], loss - held.losses(n, d, b), atol=1e-6)


@pytest.mark.slow
def test_residuals_are_of_the_points_that_were_fitted(points, free):
    found = free.residuals()
    rows = points.loc[points["reached"]]
    assert sorted(found["measured"]) == pytest.approx(sorted(rows["tokens_to_target"]), rel=1e-6)
    fitted = free.tokens(found["batch"], found["target_loss"])
    np.testing.assert_allclose(found["fitted"], fitted, rtol=1e-5)
    np.testing.assert_allclose(found["residual"], np.log(found["measured"] / fitted), atol=1e-5)
    assert set(free.RESIDUAL_AXES) <= set(found)


@pytest.fixture(scope="module")
def steps():
    return read_points(str(files("bss.laws") / "published" / "cbs_steps.csv"))


def test_a_batch_left_out_of_steps_by_hand(steps):
    fit = fit_critical(steps, options=QUICK)
    rest = fit_critical(steps.loc[steps["batch"] != 1024], options=QUICK)
    errors = [
        np.log(without.steps(np.array(1024.0)) / at.curve.steps[at.curve.batch == 1024][0])
        for without, at in zip(rest.fits, fit.fits, strict=True)
    ]
    found = fit.residuals()
    assert len(found) == sum(len(at.residuals) for at in fit.fits)
    np.testing.assert_allclose(np.log(found["measured"] / found["fitted"]), found["residual"])
    assert found.loc[found["batch"] == 1024, "left_out"].tolist() == pytest.approx(
        [-error for error in errors], rel=1e-4
    )


def test_steps_have_no_parameter_to_fix(steps):
    with pytest.raises(InputError, match="alpha: "):
        fit_critical(steps, constraints="alpha=1.4", options=QUICK)


def test_a_point_of_steps_that_fits_no_curve_is_named(steps):
    b, rng = 2.0 ** np.arange(5, 15), np.random.default_rng(0)
    one = steps.iloc[[0] * 10].assign(model="m", params=1e8, batch=b)
    one = one.assign(steps=1000 * (1 + 2000 / b) * np.exp(0.01 * rng.standard_normal(10)))
    assert not fit_critical(one, reference=64, options=QUICK).outliers
    far = one.assign(steps=one["steps"] * np.where(b == 512, 1.3, 1.0))
    (named,) = fit_critical(far, reference=64, options=QUICK).outliers
    assert (named.at["batch"], named.off) == (512, pytest.approx(np.log(1.3), abs=0.05))
    assert "--drop 'model=m,batch=512'" in str(named)


def test_a_law_whose_reference_is_refused_has_no_exponent(steps):
    fit = fit_critical(steps, reference=2048, options=QUICK)
    assert fit.quantity == "B_crit" and sum(at.is_linear for at in fit.fits) < 3
    assert fit.law.exponents[0].value == pytest.approx(0.62, abs=0.005)
