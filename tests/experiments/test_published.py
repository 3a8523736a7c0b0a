"""Published measurements: units and sums of the tables, and derived numbers made again."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import optima
from experiments.published import analysis


def read(name):
    return pd.read_csv(optima.PUBLISHED / name, comment="#")


def test_the_tables_of_ramps_and_constant_batches_are_consistent():
    ramps = read("batch_ramps.csv")
    batch_tokens = ramps["batch_constant"] * ramps["seq_len"]
    steps = ramps["tokens_constant"] / batch_tokens
    assert np.allclose(steps, ramps["steps_constant"], rtol=0.002)
    assert np.allclose(ramps["tokens_ramp"], ramps["tokens_constant"], rtol=0.025)
    assert ramps[["loss_constant", "loss_ramp"]].apply(lambda x: x.between(2, 5)).all(axis=None)
    assert ramps["differs"].notna().all() and ramps["params"].between(8e7, 1.1e9).all()
    constant = read("seesaw_constant_batch.csv")
    size = constant["batch"] * constant["seq_len"]
    assert np.allclose(constant["steps"] * size, constant["tokens"], rtol=0.002)
    assert constant["loss"].between(2, 5).all() and constant["lr"].between(1e-4, 0.1).all()


@pytest.mark.parametrize("name", ["openeurollm", "nqs_lm1b", "optimizer_batch"])
def test_a_best_batch_lies_within_its_bounds(name):
    cells = optima.derived_optima(name)
    assert len(cells) == {"openeurollm": 49, "nqs_lm1b": 3, "optimizer_batch": 10}[name]
    for at in cells:
        assert (at.low or 0) <= (at.value or at.low or 0) <= (at.high or np.inf)
        assert at.value or at.low or at.high
        assert 1e6 < at.params < 2e9 and 1e7 < at.tokens <= 3e11


@pytest.mark.parametrize("name", ["exponents", "ramps"])
def test_the_derived_tables_are_those_of_their_command(name, tmp_path):
    fresh = getattr(analysis, name)()
    fresh.to_csv(tmp_path / "table.csv", index=False, float_format="%.4g")
    assert (tmp_path / "table.csv").read_text() == (analysis.DERIVED / f"{name}.csv").read_text()


def test_an_exponent_of_planted_optima_is_found():
    sizes = [(n, d) for n in (1e8, 4e8, 1.6e9) for d in (1e9, 8e9, 6.4e10)]
    planted = {
        name: [optima.Optimum(n, d, scale * n**0.1 * d**0.5) for n, d in sizes]
        for name, scale in (("a", 2.0), ("b", 5.0))
    }
    a, b = analysis._exponents("both", planted)
    assert (a["value"], b["value"]) == pytest.approx((0.1, 0.5))
    assert a["optima"] == 18 and b["high"] - b["low"] < 1e-6


def test_penalties_are_relative_to_the_smallest_batch(tmp_path):
    table = {"optimizer": "Adam", "family": "x", "batch": [512, 128], "loss": [3.02, 3.0]}
    pd.DataFrame({**table, "batch_tokens": [524288, 131072]}).to_csv(tmp_path / "t.csv")
    (row,) = analysis.penalties(tmp_path / "t.csv").to_dict("records")
    assert row["batch_tokens"] == 524288 and row["mnats"] == pytest.approx(20)
    committed = pd.read_csv(analysis.DERIVED / "penalties.csv")
    assert len(committed) == 30 and (committed["mnats"] > 0).all()


@pytest.mark.skipif("PUBLISHED_TABLES" not in os.environ, reason="needs tables without a licence")
def test_what_is_derived_from_tables_without_a_licence(tmp_path):
    tables = Path(os.environ["PUBLISHED_TABLES"])
    for name, cells in optima.without_licence(tables).items():
        assert cells == optima.derived_optima(name)
    fresh = analysis.penalties(tables / "optimizer_batch.csv")
    fresh.to_csv(tmp_path / "table.csv", index=False, float_format="%.4g")
    assert (tmp_path / "table.csv").read_text() == (analysis.DERIVED / "penalties.csv").read_text()
