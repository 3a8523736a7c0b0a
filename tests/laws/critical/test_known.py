"""Critical batches that are known by hand: curves, definitions, laws, and bounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bss import values
from bss.errors import InputError
from bss.laws.critical.curves import StepsCurve, steps_curves
from bss.laws.critical.fit import DEFAULTS, fit_critical
from bss.laws.critical.laws import Fitted, definitions, laws_of
from bss.laws.critical.shape import (
    Allowance,
    Shapes,
    critical_batch,
    fit_shapes,
    interpolated_batch,
    log_steps,
    profile_interval,
    refit_shapes,
)
from bss.laws.critical.values import CriticalBatch
from bss.laws.fitting.estimate import Estimate, Options
from tests.laws.critical.test_fit import planted
from tests.laws.golden import assert_golden, numbers

ALLOWED = Allowance(0.2, 64.0)


def curve(i=0, batches=(32, 64, 256, 1024, 4096.0), noise=0.02, **change):
    """Steps with a bend that grows with the size, and waves for noise."""
    batch, a, kappa = np.array(batches, float), 100.0 * (i + 1), 300.0 * 1.6**i
    steps = a * (1 + kappa / batch) * np.exp(noise * np.cos(1 + i + 2 * np.arange(len(batch))))
    ones = np.ones(len(batch), int)
    given = {"model": f"m{i}", "params": 1e6 * 2**i, "tokens": 3e7 * 2 ** (i % 3)}
    given |= {"target_loss": 3.0, "kind": "stable", "seq_len": 64.0, "seed_noise": np.nan}
    given |= {"batch": batch, "steps": steps, "seeds": ones, "settings": ones}
    return StepsCurve(**given | change)


def fitted(curves, *, alpha=1.0, refits=6):
    """Shapes as they were planted, with refits that are no random ones."""
    count = len(curves)
    waves = np.cos(1 + np.arange(count)[:, None] + 3 * np.arange(refits))
    kappa = 300.0 * 1.6 ** np.arange(count)
    a, noise = 100.0 * (1 + np.arange(count)), np.full(count, 0.02)
    shapes = Shapes(a, kappa, np.full(count, alpha), noise, noise > 0)
    below, bend = (x[:, None] * np.exp(s * waves) for x, s in ((a, 0.1), (kappa, 0.2)))
    refit = Shapes(below, bend, np.full((count, refits), alpha), waves, waves > 0)
    drawn = [0.05 * np.sin(np.arange(refits)[:, None] + np.arange(len(c.batch))) for c in curves]
    return Fitted(curves, shapes, refit, drawn)


def table():
    """Settings, seeds, a batch that was not reached, and steps that rise."""
    rows = []
    for batch in (8, 16, 32, 64):
        for lr in (1e-3, 2e-3):
            for seed in range(1 + (lr == 2e-3 and batch > 8)):
                steps = (
                    900 / batch + 10 + 1e4 * (lr - 1.6e-3) ** 2 * 1e3 + seed + (batch == 64) * 40
                )
                rows.append((batch, lr, seed, round(steps), not (batch == 16 and lr == 1e-3)))
    rows.append((128, 1e-3, 0, 500, False))
    rows.append((128, 2e-3, 0, 400, False))
    names = ["batch", "peak_lr", "seed", "steps", "reached"]
    one = pd.DataFrame(rows, columns=names).assign(
        model="",
        params=np.nan,
        budget_tokens=2e6,
        target_loss=3.0,
        kind="x",
        seq_len=32.0,
    )
    return pd.concat([one, one.assign(params=1.5e6, target_loss=2.5)], ignore_index=True)


@pytest.mark.parametrize("unit", ["sequences", "tokens"])
def test_curves_keep_their_numbers(unit):
    assert_golden(f"critical-curves-{unit}", numbers(steps_curves(table(), unit)), rel=1e-9)


def test_a_curve_is_read_back_and_two_batches_are_none():
    one = replace(curve(), censored={128.0: 40.0})
    entry = values.to_dict(one)
    assert entry["not_reached"] == [{"batch": 128.0, "steps": 40.0}]
    assert numbers(values.from_dict(StepsCurve, entry, strict=False)) == numbers(one)
    few = table().loc[lambda rows: rows["batch"].isin([8, 16, 128])]
    with pytest.raises(
        InputError, match="model unnamed, target 3: 2 batches reached the target, a"
    ):
        steps_curves(few)
    right = table().assign(batch_tokens=lambda rows: rows["batch"] * 32)
    assert len(steps_curves(right)[0]) == 2
    right.loc[1, "batch_tokens"] += 1
    with pytest.raises(InputError, match="batch_tokens: 257 at model , batch 8, but batch times"):
        steps_curves(right)


def test_shapes_and_their_refits_keep_their_numbers():
    curves = [curve(0), curve(1, (16, 64, 256, 512.0)), curve(2, (32, 128, 512))]
    shapes = fit_shapes(curves)
    refits, drawn = refit_shapes(curves, shapes, resamples=4, seed=5)
    free = fit_shapes(curves[:2], None)
    more, _ = refit_shapes(curves[:2], free, None, resamples=3)
    exact = fit_shapes([curve(0, noise=0.0)])
    results = [shapes, refits, drawn, free, more, shapes.b, exact.noise]
    results.append([log_steps(shapes, i, np.array([10.0, 1e3])) for i in range(3)])
    assert_golden("critical-shapes", numbers(results), rel=1e-4)


def test_critical_batches_by_law_and_by_interpolation_keep_their_numbers():
    batch, logs = np.array([16, 32, 64, 256, 1024.0]), np.log([900, 480, 260, 120, 100.0])
    level = np.stack([logs, logs[::-1] / 4, -np.log(batch)])
    results = {
        "closed": critical_batch([0, 10.0, 1e6], 1.0, Allowance(0.5, 32)),
        "free": critical_batch([10.0, 1e3], [0.6, 1.7], Allowance(0.5, 32)),
        "inside": interpolated_batch(batch, level, Allowance(0.5, 40)),
        "at the first": interpolated_batch(batch, level, Allowance(0.1, 16)),
        "at the last": interpolated_batch(batch, level, Allowance(0.1, 1024)),
        "profiles": [profile_interval(curve(i), 0.8) for i in range(3)],
        "default": profile_interval(curve(1)),
        "exact": profile_interval(curve(1, noise=0.0)),
        "open": [
            profile_interval(curve(6, (2, 4, 8.0))), profile_interval(curve(0, (1e5, 3e5, 9e5)))
        ],
        "three": profile_interval(curve(1, (32, 256, 2048)), 0.5),
    }  # fmt: skip
    assert_golden("critical-batches", numbers(results), rel=1e-6)
    assert str(Allowance(0.25, 1000)) == "25% over 1000"


def test_laws_and_definitions_keep_their_numbers():
    curves = [curve(i) for i in range(6)]
    every = {False: fitted(curves), True: fitted(curves, alpha=1.3)}
    array, draws = every[False].by_law(ALLOWED)
    batches: list[float] = array.tolist()
    tied = [replace(c, tokens=20 * c.params) for c in curves]
    results = {
        "by law": [batches, draws],
        "without": every[False].without_law(ALLOWED),
        "joint": laws_of(curves, [*batches[:5], None], draws, 0.9),
        "tied": laws_of(tied, batches, draws, 0.9),
        "sizes": laws_of([replace(c, tokens=1e9 * (1 + i / 9)) for i, c in enumerate(curves)],
                         batches, draws, 0.9),
        "unknown": laws_of([replace(c, tokens=np.nan) for c in curves], batches, draws, 0.9),
        "repeated": laws_of([curves[0]] * 3, batches[:3], draws[:3], 0.9),
        "one": laws_of(curves[:1], batches[:1], draws[:1], 0.9),
        "definitions": definitions(
            every[False], every[True], [True] * 5 + [False], ALLOWED, ("params",), 0.9
        ),
        "held": definitions(
            every[False], None, [True] * 6, Allowance(0.3, 2048), ("tokens",), 0.9
        ),
        "no law": definitions(every[False], None, [True] * 6, Allowance(0.1, 33), (), 0.9),
        "open": laws_of(curves, batches, [np.full(6, np.inf), *draws[1:]], 0.9),
    }  # fmt: skip
    assert_golden("critical-laws", numbers(results), rel=1e-6)


def bounds():
    """Curves whose bend is inside, below, above, far and nowhere."""
    parts: dict[str, Any] = {
        "inside": {"kappa": 2000.0, "noise": 0.03},
        "below": {"kappa": 3.0, "noise": 0.03},
        "near below": {"kappa": 20.0, "noise": 0.001},
        "above": {"kappa": 3e5, "noise": 0.03},
        "near above": {"kappa": 3e4, "noise": 1e-4},
        "none": {"kappa": 2e3, "noise": 1.0},
    }
    tables = [
        planted(a=1000.0 + i, **settings).assign(model=name, params=1e6 * 2**i, budget_tokens=2e7)
        for i, (name, settings) in enumerate(parts.items())
    ]
    return pd.concat(tables, ignore_index=True)


def test_fits_of_bends_inside_and_outside_keep_their_numbers():
    fit = fit_critical(bounds(), overhead=0.3, reference=128, options=Options(40, 0.8, 3))
    parts = [fit.fits, fit.laws, fit.joint_refused, fit.warnings, fit.overhead, fit.reference]
    assert_golden("critical-bounds", numbers(parts), rel=2e-3)
    assert (DEFAULTS.resamples, DEFAULTS.level) == (2000, 0.9)
    assert (fit.level, fit.resamples, fit.unit) == (0.8, 40, "sequences")


def batch_of(i, *, model=None, low=0.8, high=1.3, **change):
    """What a fit says of one curve."""
    one = curve(i, **({"model": model} if model else {}))
    bend = 300.0 * 1.6**i

    def about(value: float) -> Estimate:
        return Estimate(value, low * value, high * value, 0.9)

    given: dict[str, Any] = {
        "curve": one, "S_min": about(100.0 * (i + 1)), "E_min": about(bend * 100 * (i + 1)),
        "alpha": Estimate(1.0), "B_crit": about(bend), "cbs": about(77 + 0.2 * bend),
        "interpolated": about(90 + 0.15 * bend), "noise": 0.02 + 0.01 * i,
        "residuals": tuple(0.02 * np.cos(1 + i + 2 * np.arange(5))), "status": "converged",
    }  # fmt: skip
    return CriticalBatch(**given | change)


def test_steps_are_by_the_law_where_it_is_known():
    at = batch_of(0)
    np.testing.assert_allclose(at.steps(np.array([150.0, 300.0])), [300.0, 200.0])
    curved = batch_of(0, alpha=Estimate(2.0))
    np.testing.assert_allclose(curved.steps(np.array([150.0])), [500.0])
    none = Estimate(None)
    changes: Any = ({"S_min": none}, {"B_crit": none}, {"alpha": none})
    for change in changes:
        assert np.isnan(batch_of(0, **change).steps(np.array([1.0, 2.0]))).tolist() == [True, True]
