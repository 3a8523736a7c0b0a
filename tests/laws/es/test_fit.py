import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.base import BestBatch, Options
from bss.laws.es import LAWS

QUICK = Options(resamples=8)


def exact(planted, law, **settings):
    return planted.points(planted.laws[law], offset=0, noise=0, **settings)


@pytest.fixture(scope="module")
def surface(planted):
    return fit_es(exact(planted, "surface"), "surface", options=QUICK)


@pytest.fixture(scope="module")
def piecewise(planted):
    points = planted.points(planted.laws["piecewise"], batches=planted.WIDE)
    return fit_es(points, "piecewise", options=QUICK)


def test_exact_surface_is_recovered(planted, surface):
    fit = surface
    assert fit.joint is not None
    np.testing.assert_allclose(list(fit.joint.values()), planted.SURFACE, rtol=1e-5)
    truth = LAWS["surface"].quantities(planted.SURFACE, 2.0)
    at = fit.at(2.0)
    assert at.batches["B_opt"].value == pytest.approx(truth["B_opt"], rel=1e-5)
    assert at.E_min == pytest.approx(truth["E_min"] * planted.SEQ_LEN, rel=1e-5)
    assert at.S_opt == pytest.approx(truth["S_opt"], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "m", "B_phi"),
    [
        ("surface, m free", 1.3, 0.0),
    ],
)
def test_exact_members_of_the_family_are_recovered(planted, name, m, B_phi):
    law = planted.SURFACE._replace(m=m, B_phi=B_phi)
    points = planted.points(planted.surface(law), offset=0, noise=0)
    fit = fit_es(points, name, options=QUICK)
    assert EsFit.from_dict(json.loads(json.dumps(fit.to_dict()))) == fit
    assert fit.joint is not None
    np.testing.assert_allclose(list(fit.joint.values()), law, rtol=2e-2)


def test_exact_hyperbola_is_recovered(planted):
    fit = fit_es(exact(planted, "hyperbola"), "hyperbola", options=QUICK)
    for at in fit.fits:
        law = planted.hyperbola_at(at.target_loss)
        assert at.batches["B_crit"].value == pytest.approx(law.E_min / law.S_min, rel=1e-5)
        assert at.E_min == pytest.approx(law.E_min * planted.SEQ_LEN, rel=1e-5)
        assert at.S_opt is None


@pytest.mark.slow
def test_planted_three_stage_law_is_recovered_from_ten_batches(planted, piecewise):
    told = [at for at in piecewise.fits if at.status == "converged"]
    assert len(told) == 3
    for at in told:
        law = planted.piecewise_at(at.target_loss)
        B_opt = at.batches["B_opt"]
        assert B_opt.value == pytest.approx(law.E_min / law.S_opt, rel=0.2)
        assert at.E_min == pytest.approx(law.E_min * planted.SEQ_LEN, rel=0.04)


def trial(planted, seed, seeds):
    generator = np.random.default_rng(seed)
    points = planted.points(planted.laws["surface"], seeds=seeds, generator=generator)
    fit = fit_es(points, "surface", options=Options(100, seed=seed))
    truth = LAWS["surface"].quantities(planted.SURFACE, np.array(planted.TARGETS))["B_opt"]
    estimates = [at.batches["B_opt"] for at in fit.fits]
    pairs = [(e, t) for e, t in zip(estimates, truth, strict=True) if e.value is not None]
    assert len(pairs) >= 2
    errors = [abs(e.value / t - 1) for e, t in pairs]
    covered = [
        np.nan if e.value is None else float(e.low <= t <= e.high)
        for e, t in zip(estimates, truth, strict=True)
    ]
    return errors, covered


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
def test_intervals_cover_at_their_level_in_80_trials(planted, seeds):
    """The level is 0.9: its standard error in 80 trials is 0.034, and the low end is 3 of them."""
    trials = [trial(planted, seed, seeds) for seed in range(80)]
    assert np.median(np.concatenate([errors for errors, _ in trials])) < 0.05
    covered = np.array([covered for _, covered in trials])
    assert np.isfinite(covered).mean() > 0.97  # the rest have their best batch at an end
    coverage = np.nanmean(covered, axis=0)
    assert (coverage >= 0.80).all()
    assert (coverage <= 0.97).all()


def test_unreached_targets_bound_the_law(planted):
    points = exact(planted, "surface", budget=60_000)
    assert 0 < points["reached"].sum() < len(points)
    fit = fit_es(points, "surface", options=QUICK)
    assert fit.joint is not None
    np.testing.assert_allclose(list(fit.joint.values()), planted.SURFACE, rtol=1e-4)
    claimed = points.copy()
    # The same points with a batch of 64 said to fail where it succeeded must raise E there.
    late = (claimed["batch"] == 64) & claimed["reached"]
    claimed.loc[late, "reached"] = False
    claimed.loc[late, ["steps", "tokens_to_target"]] *= 1.5
    moved = fit_es(claimed, "surface", options=QUICK)
    before, after = (f.tokens(64, 2.2)[0] for f in (fit, moved))
    assert after > before * 1.05


@pytest.mark.slow
def test_minimum_outside_the_batches_is_unidentified_with_a_bound(planted):
    fit = fit_es(exact(planted, "surface", batches=(64, 128, 256, 512)), "surface", options=QUICK)
    B_opt, B_min = (fit.at(2.0).batches[name] for name in ("B_opt", "B_min"))
    assert B_opt.value is None and B_opt.high == pytest.approx(64.0, rel=0.1)
    assert isinstance(B_opt, BestBatch) and B_opt.status == "at_boundary"
    assert (B_min.value, B_min.high) == (None, 64.0)


def test_three_stage_law_needs_eight_batches(planted):
    few = exact(planted, "piecewise", targets=(2.2, 1.85))
    fit = fit_es(few, "piecewise", options=QUICK)
    assert all(at.S_min is None and at.status.startswith("unidentified") for at in fit.fits)
    assert all(at.best == at.measured and at.batches["B_min"].value is None for at in fit.fits)
    assert len(fit.warnings) == len(fit.fits)


@pytest.mark.parametrize(
    "law", ["surface", "hyperbola", pytest.param("piecewise", marks=pytest.mark.slow)]
)
def test_fit_survives_json_with_extra_keys(planted, request, law):
    """The three-stage law takes longest to compile."""
    if law == "hyperbola":
        points = planted.points(planted.laws[law], targets=(2.2, 1.85))
        fit = fit_es(points, law, options=QUICK)
    else:
        fit = request.getfixturevalue(law)
    entry = json.loads(json.dumps(fit.to_dict(), allow_nan=False))
    assert (entry["kind"], entry["schema"], entry["law"]) == ("es", 5, law)
    names = {"B_crit"} if law == "hyperbola" else {"B_min", "B_opt"}
    for at in entry["fits"]:
        assert names | {"target_loss", "S_min", "E_min", "S_opt", "status"} <= set(at)
        assert all({"value", "low", "high", "level"} <= set(at[name]) for name in names)
    assert (entry["surface"] is not None) == (law == "surface")
    entry["fits"][0]["mine"] = entry["mine"] = 1
    assert EsFit.from_dict(entry) == fit


def test_result_counts_points_runs_and_residuals(planted):
    points = planted.points(planted.laws["surface"], seeds=3)
    fit = fit_es(points, "surface", options=QUICK)
    assert fit.points == points["reached"].sum() == len(fit.residuals())
    assert fit.runs == 21
    assert fit.batches == planted.BATCHES
    assert fit.residuals()["relative_loss"].std() < 0.006


def test_runs_that_change_their_batch_are_left_out(planted, surface):
    points = exact(planted, "surface")
    ramp = points[points["run"] == "b16s0"].assign(run="ramp")
    ramp["batch"] = ramp["batch"] * np.linspace(0.5, 1.0, len(ramp))
    fit = fit_es(pd.concat([points, ramp]), "surface", options=QUICK)
    assert fit.joint == surface.joint
    assert "1 runs change their batch" in fit.warnings[0]


BAD = {
    "reached is false in every row": lambda p: p.assign(reached=False),
    "2 batch sizes reach a target": lambda p: p[p["batch"].isin([16, 32])],
    "the surface needs at least 2": lambda p: p[p["target_loss"] == 2.0],
    "model b, a are mixed": lambda p: p.assign(model=np.where(p["batch"] > 8, "a", "b")),
    "seq_len 128, 64 are mixed": lambda p: p.assign(seq_len=np.where(p["batch"] > 8, 64, 128)),
    "row 3: steps is nan": lambda p: p.assign(steps=p["steps"].where(p.index != 2)),
    "4 for the 4 parameters of the surface law": lambda p: (
        p[p["batch"].isin([8, 16, 32]) & p["target_loss"].isin([2.0, 1.7])]
        .drop_duplicates(["batch", "target_loss"])
        .iloc[[0, 1, 2, 4]]
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_designs_are_refused_in_one_line(planted, message):
    with pytest.raises(InputError, match=message) as refusal:
        fit_es(BAD[message](exact(planted, "surface")), "surface")
    assert "\n" not in str(refusal.value)


def test_unknown_law_target_and_kind_are_refused(planted):
    points = exact(planted, "hyperbola")
    with pytest.raises(InputError, match="'cubic' is unknown"):
        fit_es(points, "cubic")
    fit = fit_es(points, "hyperbola", options=QUICK)
    with pytest.raises(InputError, match=r"3\.14 was not fitted"):
        fit.at(3.14)
    with pytest.raises(InputError, match=r"fitted at 2\.4 alone; fit two targets"):
        replace(fit, fits=fit.fits[:1]).tokens(8, 3.14)
    with pytest.raises(InputError, match="expected a fit of kind 'es'"):
        EsFit.from_dict({"kind": "critical"})
