"""The law with a learning rate on planted tables, by a law that is none of its forms."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bss.laws import LossFit, check_losses, fit_loss
from bss.laws.final_loss.best import best_lr
from tests.laws.final_loss.planted import World, fitted, holds, octaves, width

PLAIN = World()
ONE: dict[str, Any] = {"models": (4e8,), "budgets": (2e10,)}
ASKED = [(N, D) for N in (2e8, 4e8, 1.2e9) for D in (8e9, 2e10, 6e10)]
CELLS = 9


@pytest.mark.slow
def test_best_batch_and_rate_at_measured_sizes_and_between_them():
    off = np.array([octaves(fitted(PLAIN).law, PLAIN, *sizes) for sizes in ASKED])
    assert np.abs(off[:, 0]).max() < 0.15 and np.abs(off[:, 1]).max() < 0.2
    assert off[:, 2].max() < 5e-4


def test_rates_are_told_with_intervals_that_hold():
    told = fitted(PLAIN).best_lrs
    true = [PLAIN.tuned(at.params, at.tokens, at.batch) for at in told.optima]
    assert all(at.lr.value is not None for at in told.optima)
    assert sum(holds(at.lr, x) for at, x in zip(told.optima, true, strict=True)) >= CELLS - 1
    assert max(width(at.lr) for at in told.optima) < 1.4
    for name, x in zip("NDB", (PLAIN.x, PLAIN.y, PLAIN.p), strict=True):
        assert told.exponents[name].value == pytest.approx(x, abs=0.05)
        assert holds(told.exponents[name], x)


def test_best_batches_are_told_with_intervals_that_hold():
    fit = fitted(PLAIN)
    held = [holds(at.batch, PLAIN.best_batch(at.tokens)) for at in fit.optima]
    assert all(at.batch.status == "ok" for at in fit.optima) and sum(held) >= CELLS - 1
    assert fit.B_opt_exponents["D"].value == pytest.approx(PLAIN.q, abs=0.08)
    assert holds(fit.B_opt_exponents["N"], 0.0) and holds(fit.B_opt_exponents["D"], PLAIN.q)


def test_at_a_given_batch():
    law = fitted(PLAIN).law
    lr = best_lr(law, 4e8, 2e10, 3e5, 0.9)
    assert lr.value == pytest.approx(PLAIN.tuned(4e8, 2e10, 3e5), rel=0.06)
    assert holds(lr, PLAIN.tuned(4e8, 2e10, 3e5))
    far = best_lr(law, 4e8, 2e10, 1e9, 0.9)  # its best rate is above all that were tried
    assert far.value is None and far.note.startswith("unidentified")


@pytest.mark.slow
@pytest.mark.parametrize("world", [World(floor=0.3, scale=0.9), World(floor=0.3, scale=2.5)])
def test_intervals_of_losses_in_small_and_large_units(world):
    generator, fit = np.random.default_rng(5), fitted(world)
    N, D = np.exp(generator.uniform(np.log([1.2e8, 5e9]), np.log([1.2e9, 6e10]), (200, 2))).T
    B = world.best_batch(D) * 2 ** generator.uniform(-2, 2, 200)
    lr = world.best_lr(N, D, B) * 2 ** generator.uniform(-1.5, 1.5, 200)
    loss = world.loss(N, D, B, lr)
    table = pd.DataFrame({"params": N, "tokens": D, "batch_tokens": B, "lr": lr})
    said = fit.predict(table)
    measured = loss + world.scale * world.noise * generator.standard_normal(200)
    assert np.sqrt(np.mean((said["loss"] - loss) ** 2)) < 0.005 * world.scale
    assert np.mean(said["loss_low"].lt(measured) & said["loss_high"].gt(measured)) > 0.84
    assert np.median(said["loss_high"] - said["loss_low"]) < 0.05


@pytest.mark.slow
def test_noise_of_large_rates_moves_the_best_one():
    world = World(gradient_noise=0.01)
    off = np.array([octaves(fitted(world).law, world, *sizes) for sizes in ASKED])
    assert np.abs(off).max(axis=0) == pytest.approx([0, 0, 0], abs=0.2) and off[:, 2].max() < 5e-4
    # The rate that is best follows the batch more than without it.
    exponent = fitted(world).best_lrs.exponents["B"]
    steps = np.log2([world.tuned(4e8, 2e10, 2.0**b) for b in (18, 20)])
    assert exponent.value == pytest.approx(np.diff(steps)[0] / 2, abs=0.05)


@pytest.mark.slow
def test_a_cliff_at_large_rates_spoils_nothing():
    world = World(cliff=2.0)
    table = {"rates": (-1.8, -0.9, 0.0, 0.9, 1.8), "octaves": (-1.5, 0.0, 1.5)}
    law = fitted(world, **table).law
    assert law.points.excess.max() > 1.0  # nats
    off = np.array([octaves(law, world, *sizes) for sizes in ASKED])
    assert np.abs(off[:, :2]).max() < 0.35 and off[:, 2].max() < 0.002


@pytest.mark.slow
def test_rates_all_on_one_side_of_the_best_tell_no_best():
    for rates in ((-4.0, -3.0, -2.0, -1.2), (1.2, 2.0, 3.0, 4.0)):
        told = fitted(PLAIN, rates=rates).best_lrs
        for at in told.optima:
            assert at.lr.value is None and at.lr.note.startswith("unidentified: ")
        assert all(x.value is None for x in told.exponents.values())


@pytest.mark.slow
def test_one_cell_of_a_few_rows():
    table = {"octaves": (-1.5, 0.0, 1.5), "rates": (-1.6, -0.5, 0.6, 1.7)}
    fit: Any = fitted(PLAIN, **ONE, **table)
    batch, lr, cost = octaves(fit.law, PLAIN, 4e8, 2e10)
    assert abs(batch) < 0.2 and abs(lr) < 0.15 and cost < 1e-3
    assert fit.left_out["cell"] < 0.03 and fit.left_out["params"] is fit.left_out["tokens"] is None
    told = fit.best_lrs
    assert holds(told.optima[0].lr, PLAIN.tuned(4e8, 2e10, told.optima[0].batch))
    assert told.exponents["B"].value == pytest.approx(PLAIN.p, abs=0.1)
    assert told.exponents["N"].value is told.exponents["D"].value is None


READ = """
import json, sys
from bss.laws import LossFit
fit = LossFit.from_dict(json.load(open(sys.argv[1])))
assert "jax" not in sys.modules
one = fit.prediction(4e8, 2e10, 5e5, 3e-3, extrapolate=True)
print(json.dumps([one.loss.value, one.loss.low, one.best_lr.value]), "jax" in sys.modules)
"""


@pytest.mark.slow
def test_a_fit_is_read_back_without_jax(tmp_path):
    coupled = PLAIN.table(**ONE, rates=(0.0,))
    tuned = PLAIN.table(**ONE, octaves=(-1.5, 1.5), rates=(-1.6, -0.5, 0.6, 1.7))
    fit: Any = fit_loss(check_losses(pd.concat([coupled, tuned])))
    assert fit.with_lr and len(fit.law.points.loss) == 12
    printed = json.loads(json.dumps(fit.to_dict()))
    again: Any = LossFit.from_dict(printed)
    assert json.loads(json.dumps(again.to_dict())) == printed
    assert again.best_lrs == fit.best_lrs
    one = fit.prediction(4e8, 2e10, 5e5, 3e-3, extrapolate=True)
    assert again.prediction(4e8, 2e10, 5e5, 3e-3, extrapolate=True) == one
    assert one.lr == 3e-3
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(printed))
    told = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    ).stdout
    numbers, _, jax = told.strip().rpartition(" ")
    assert json.loads(numbers) == [one.loss.value, one.loss.low, one.best_lr.value]
    assert jax == "False"
