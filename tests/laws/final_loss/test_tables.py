"""A small part of the planted tables of `python -m benchmarks.laws`, and what fits tell of them."""

import json

import numpy as np
import pytest

from benchmarks.laws.__main__ import measures, tables
from benchmarks.laws.planted_tables import planted
from bss.cli import main
from bss.errors import InputError
from bss.laws import LossFit, check_losses, fit_loss
from bss.laws.base import Options

QUICK = Options(8)


@pytest.mark.slow
def test_intervals_of_small_tables_hold_the_best_batch():
    told = {
        kind: [answer for i in range(3) for _, answer in tables(kind, 0, i)]
        for kind in ("two by two", "one cell")
    }
    by_kind = {kind: dict(m[:2] for m in measures("tables", x)) for kind, x in told.items()}
    assert all(one["coverage"] >= 0.8 for one in by_kind.values())
    assert by_kind["two by two"]["share_with_number"] >= 0.9
    assert by_kind["two by two"]["width_median"] <= 5


def test_an_outlier_is_named_and_dropped_as_it_is_named(tmp_path, capsys):
    table = planted("two by two", 0, 0).table
    row = table.index[(table["loss"] - table["loss"].min()).abs().argsort()[2]]
    table.loc[row, "loss"] += 0.2
    path = tmp_path / "runs.csv"
    table.to_csv(path, index=False)
    call = ["fit", "loss", str(path), "--resamples", "10"]
    assert main(call) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "outlier: " in x]
    named = line.split("left out: ")[1].split(": ")[0]
    params, tokens, batch = (float(part.split("=")[1]) for part in named.split(","))
    seq_len = table.loc[row, "seq_len"]
    assert (params, tokens, batch / seq_len) == tuple(table.loc[row, ["params", "tokens", "batch"]])
    assert main([*call, "--drop", named, "--json", "--level", "0.8", "--seed", "3"]) == 0
    fit = json.loads(capsys.readouterr().out)
    kept = len(table.groupby(["params", "tokens", "batch"])) - 1
    assert len(fit["law"]["points"]["loss"]) == kept
    assert fit["outliers"] == [] and fit["level"] == 0.8
    assert {at["B_opt_tokens"]["level"] for at in fit["optima"]} == {0.8}
    assert main([*call, "--drop", "batch=77777"]) == 2
    assert "--drop" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["flat", "edge"])
def test_a_flat_valley_and_one_whose_best_batch_is_at_an_end_have_no_number(kind):
    whole = planted(kind, 0, 0).table
    table = whole.loc[whole["params"] == whole["params"].min()]
    fit = fit_loss(check_losses(table), options=QUICK)
    statuses = {at.batch.status for at in fit.optima}
    assert all(at.batch.value is None for at in fit.optima)
    assert statuses <= {"within_noise", "at_boundary", "interval_too_wide"}
    assert kind == "flat" or statuses == {"at_boundary"}


def test_what_does_not_apply_is_refused_and_what_cannot_be_told_apart_is_said():
    several = planted("two by two", 0, 1).table
    sizes = np.unique(several["params"])
    tied = several.assign(tokens=20 * several["params"])
    tied = tied.drop_duplicates(["params", "batch"]).reset_index(drop=True)
    assert len(sizes) == 2
    fit = fit_loss(check_losses(tied), options=QUICK)
    assert any("one budget for each model" in text for text in fit.warnings)
    assert fit.B_opt_exponents["N"].value is None and fit.B_opt_exponents["D"].value is None


def test_diverged_rows_bracket_nothing():
    table = planted("one cell", 0, 1).table
    first = table["batch"] == table["batch"].min()
    marked = table.assign(diverged=first.astype(int))
    fit = fit_loss(check_losses(marked), options=QUICK)
    assert len(fit.law.points.loss) == table.loc[~first, "batch"].nunique()
    assert any("diverged" in text for text in fit.warnings)


def test_an_older_fit_is_refused_with_the_command_that_makes_it_anew():
    with pytest.raises(
        InputError, match=r"schema 2; expected .*schema 8, as `bss fit loss --json`"
    ):
        LossFit.from_dict({"kind": "loss", "schema": 2})
