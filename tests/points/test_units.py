"""Runs in bits among runs in nats are named and left out; runs in nats never are."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.measuring import measure_points
from bss.points.units import NEAR, _curves, _in_bits, _near_the_ratio, in_nats
from bss.tables import check_runs


def planted(seed, seeds=2, noise=0.01):
    """Runs of one condition: a law of steps and sequences, a noisy loss, budgets that differ."""
    rng = np.random.default_rng(seed)
    floor = rng.uniform(1.5, 3)
    steps_term = rng.uniform(3, 30)
    runs = []
    for batch in (4, 8, 16, 32, 64, 128):
        for number in range(seeds):
            budget = rng.choice([1e5, 3e5])
            step = np.unique(np.geomspace(5, budget / batch, 40).astype(int))
            loss = floor + steps_term * step**-0.4 + 5.0 * (step * batch) ** -0.5
            loss *= np.exp(rng.normal(0, noise, len(step)))
            run = pd.DataFrame({"step": step, "loss": loss})
            runs.append(run.assign(run=f"b{batch}s{number}", batch=batch, seq_len=64))
    return check_runs(pd.concat(runs, ignore_index=True))


def in_bits(runs, *names):
    bits = runs["run"].isin(names)
    return runs.assign(loss=runs["loss"].where(~bits, runs["loss"] / np.log(2)))


@pytest.mark.parametrize("seed", range(40))
def test_no_run_of_one_condition_is_left_out(seed):
    runs = planted(seed, noise=(0.002, 0.01, 0.02)[seed % 3])
    assert in_nats(runs)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 300, 100))
def test_false_alarms_are_rare(start):
    alarms = [bool(in_nats(planted(seed))[1]) for seed in range(start, start + 100)]
    assert sum(alarms) <= 1


@pytest.mark.parametrize(
    ("seeds", "names"),
    [(2, ["b16s1"]), (2, ["b4s0"]), (1, ["b32s0"]), (1, ["b128s0"]), (2, ["b8s0", "b8s1"])],
)
def test_runs_in_bits_are_named(seeds, names):
    runs = in_bits(planted(3, seeds), *names)
    rest, warnings = in_nats(runs)
    assert set(runs["run"]) - set(rest["run"]) == set(names)
    assert names[0] in warnings[0] and "multiply losses in bits by ln 2" in warnings[0]


def test_the_smaller_group_is_of_the_other_unit():
    runs = planted(5, seeds=3)
    odd = [f"b{batch}s0" for batch in (4, 8, 16, 32, 64, 128)]
    others = sorted(set(runs["run"]) - set(odd))
    rest, warnings = in_nats(in_bits(runs, *others))
    assert set(rest["run"]) == set(others) and "6 runs are left out" in warnings[0]


def test_a_column_of_units_counts():
    runs = planted(1).assign(unit="nats")
    runs.loc[runs["run"] == "b4s0", "unit"] = "bits per byte"
    rest, warnings = in_nats(runs)
    assert "b4s0" not in set(rest["run"]) and "in bits by column unit (b4s0)" in warnings[0]
    with pytest.raises(InputError, match="every run is in bits by column unit; multiply"):
        in_nats(runs.assign(unit="bits"))


def test_they_are_not_measured():
    runs = in_bits(planted(2), "b16s1")
    points, warnings = measure_points(runs)
    assert "b16s1" not in set(points["run"])
    assert any("b16s1" in warning for warning in warnings)


def test_pairs_that_are_not_compared_are_not_in_bits():
    runs = planted(4, seeds=6, noise=0.02)
    names = [f"b{batch}s{seed}" for batch in (8, 16, 64) for seed in (0, 3)]
    curves = [curve for curve in _curves(in_bits(runs, *names)) if curve.batch in (8, 16)]

    def is_in_bits(curve, other):
        expected = np.interp(curve.tokens, other.tokens, other.losses)
        inside = (curve.tokens >= other.tokens[0]) & (curve.tokens <= other.tokens[-1])
        return _in_bits(curve, expected, inside, NEAR)

    every = [pair for pair in permutations(curves, 2) if is_in_bits(*pair)]
    near = [*_near_the_ratio(curves)]
    assert every and every == [pair for pair in near if is_in_bits(*pair)]
    assert len(near) < len(curves) * len(curves) / 2
