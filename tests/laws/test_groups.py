"""One fit per group of rows."""

import json

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from tests.laws.own.data_law import LAW
from tests.laws.own.test_fit import planted as own_table
from tests.laws.ramps.test_branches import table as branches
from tests.planted_curves import CONSTANTS, TWO_STAGE, curves
from tests.planted_curves import LAW as CURVES

SLOPES = {("Muon", "low"): 0.01, ("Muon", "high"): 0.015, ("Lion", "low"): 0.03}
BATCHES = (128, 512, 1024, 2048)


def planted():
    """Losses of four batch sizes, in which each group pays otherwise for a large one."""
    rows = [
        {
            "optimizer": optimizer,
            "family": family,
            "batch": batch,
            "loss": 3.2 + slope * (i + i * i),
        }
        for (optimizer, family), slope in SLOPES.items()
        for i, batch in enumerate(BATCHES)
    ]
    rows.append({"optimizer": "Lion", "family": "high", "batch": 128, "loss": 3.3})
    table = pd.DataFrame(rows).assign(params=124e6, seq_len=1024)
    # As in a run of whole steps, budgets differ by the remainder of a step.
    return table.assign(tokens=table["batch"].map({2048: 1_704_984_576}).fillna(1_703_936_000))


@pytest.fixture(scope="module")
def fits():
    return bss.fit_loss(planted(), by=["optimizer", "family"], resamples=20)


def test_each_group_has_the_fit_of_its_rows_alone(fits):
    assert [*fits] == [*SLOPES]
    table = planted()
    rows = table[(table["optimizer"] == "Muon") & (table["family"] == "high")]
    alone = bss.fit_loss(rows, resamples=20)
    assert fits["Muon", "high"].summary().equals(alone.summary())
    assert [*fits.summary()][:3] == ["optimizer", "family", "params"]
    unknown = [one.summary()["B_opt_tokens"].isna().all() for one in fits.values()]
    assert any(unknown) and fits.summary()["B_opt_tokens"].dtype == float
    assert fits.answer.splitlines()[2].startswith("optimizer=Lion, family=low: B_opt")


def test_a_group_with_one_batch_size_is_told_and_left_out(fits):
    told = "optimizer=Lion, family=high: left out: it has one batch size; 2 are needed"
    assert fits.left_out == (told,) and fits.warnings[0] == told
    assert len(fits.warnings) == len({*fits.warnings})
    with pytest.raises(InputError, match="no fit of optimizer=Lion, family=high; choose one of"):
        fits["Lion", "high"]


def test_penalties_are_against_the_best_of_the_group(fits):
    found = fits.penalties().groupby(["optimizer", "family"])
    for group, slope in SLOPES.items():
        rows = found.get_group(group)
        assert rows["batch_tokens"].tolist() == [1024 * batch for batch in BATCHES]
        assert rows["penalty"].to_numpy() == pytest.approx(slope * np.array([0, 2, 6, 12]))


COSTS = {"Shampoo": 0.0972, "Muon": 0.1003, "SOAP": 0.1297, "Adam": 0.163, "Lion": 0.2385}
"""Nats of 2.1M tokens above 131K at standard decay (arXiv 2610.08975); the losses are planted."""


@pytest.mark.slow  # five fits: 4 CPU seconds; the planted costs above cover the same
def test_penalties_of_five_optimizers():
    shares = {128: 0.0, 512: 0.15, 1024: 0.5, 2048: 1.0}
    rows = [
        {"optimizer": name, "family": family, "batch": b, "loss": 3.25 + level + share * cost}
        for family, level in (("standard", 0.0), ("low", 0.02))
        for name, cost in COSTS.items()
        for b, share in shares.items()
    ]
    table = pd.DataFrame(rows).assign(params=124e6, seq_len=1024)
    table["tokens"] = table["batch"].map({2048: 1_704_984_576}).fillna(1_703_936_000)
    found = bss.fit_loss(table, by="optimizer", keep="family=standard", resamples=20).penalties()
    largest = found.loc[found["batch_tokens"] == 2048 * 1024].set_index("optimizer")
    assert largest["penalty"].to_dict() == pytest.approx(COSTS)
    assert (largest["penalty_low"] < largest["penalty"]).all()


def test_the_command_prints_the_same(fits, tmp_path, capsys):
    planted().to_csv(tmp_path / "losses.csv", index=False)
    line = ["fit", "loss", str(tmp_path / "losses.csv"), "--by", "optimizer,family"]
    assert main([*line, "--resamples", "20", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["by"] == ["optimizer", "family"]
    assert [one["group"]["optimizer"] for one in told["groups"]] == ["Muon", "Muon", "Lion"]
    assert told["penalties"][3]["penalty"] == pytest.approx(0.12)
    assert main([*line, "--resamples", "20"]) == 0
    text = capsys.readouterr().out
    assert "Above the best batch size of the group" in text and "left out" in text


def test_learning_rates_are_fitted_by_group():
    rows = [
        {"beta2": beta2, "lr": lr, "loss": 3 + np.log(lr / best) ** 2 / 9}
        for beta2, best in ((0.95, 0.003), (0.99, 0.002))
        for lr in (0.001, 0.002, 0.004, 0.008)
    ]
    found = bss.fit_lr(pd.DataFrame(rows), by="beta2")
    assert found[0.95].best_lr().value == pytest.approx(0.003, rel=1e-3)
    assert found[0.99].best_lr().value == pytest.approx(0.002, rel=1e-3)
    ratio = found.differences().set_index("quantity").loc["best LR"]
    assert ratio["value"] == pytest.approx(0.002 / 0.003, rel=1e-3)
    assert ratio["low"] < ratio["value"] < ratio["high"]
    with pytest.raises(InputError, match="penalties: a fit of kind lr has none"):
        found.penalties()


def test_the_lowest_losses_differ_as_planted(fits):
    found = fits.differences(against=("Muon", "high"))
    lowest = found[found["quantity"] == "lowest loss"]
    assert lowest["against"].unique().tolist() == ["optimizer=Muon, family=high"]
    assert (lowest["low"] < 0.005).all() and (lowest["high"] > -0.005).all()
    assert (found.loc[found["quantity"] == "B_opt", "note"] != "").all()


def contests(bests):
    """Losses of runs of equal time, lowest at another batch size in each group."""
    rows = [
        {"optimizer": name, "batch": b, "seconds": 600, "loss": 3 + np.log(b / best) ** 2 / 20}
        for name, best in bests.items()
        for b in (64, 128, 256, 512, 1024)
    ]
    return pd.DataFrame(rows)


def test_saved_groups_are_read_back_and_asked_by_name(tmp_path, capsys):
    found = bss.fit_loss(contests({"Muon": 400, "Lion": 200}), equal="seconds", by="optimizer")
    ratio = found.differences().set_index("quantity").loc["B_opt"]
    assert ratio["value"] == pytest.approx(0.5) and ratio["low"] < 0.5 < ratio["high"] < 1
    path = tmp_path / "fit.json"
    found.save(path)
    read = bss.read_fit(path)
    assert read.to_dict() == found.to_dict() and [*read] == ["Muon", "Lion"]
    found.plot().figure.savefig(tmp_path / "groups.png")
    ask = ["predict", "--from", str(path), "--batch", "256"]
    assert main([*ask, "--group", "Lion"]) == 0
    assert capsys.readouterr().out.startswith("optimizer=Lion: Predicted loss: 3.00")
    for group, told in (((), "it has 2 fits by optimizer"), (("--group", "Adam"), "is no group")):
        assert main([*ask, *group]) == 2
        assert told in capsys.readouterr().err
    found["Lion"].save(path)
    assert main([*ask, "--group", "Lion"]) == 2
    assert "names one fit; leave --group out" in capsys.readouterr().err


def test_groups_may_share_the_names_of_models_and_runs():
    rows = [
        {"optimizer": name, "model": "a", "params": 1e8, "target_loss": 3.0, "batch": b,
         "steps": 1000 * (1 + critical / b)}
        for name, critical in (("Muon", 64), ("Lion", 32))
        for b in (8, 16, 32, 64, 128, 256)
    ]  # fmt: skip
    how = {"reference": "smallest", "resamples": 20}
    found = bss.fit_critical(pd.DataFrame(rows), by="optimizer", **how)
    ratio = found.differences().iloc[0]
    assert ratio["value"] == pytest.approx(16 / 22.4, rel=1e-3)  # 20% above that of batch 8


@pytest.mark.slow  # two fits of E(S): 8 CPU seconds
def test_best_batches_differ_as_planted():
    noise = np.random.default_rng(0)
    rows = [
        {"optimizer": name, "target_loss": loss, "batch": b, "seq_len": 64, "seed": seed,
         "steps": 9000 * scale / b * (1 + 0.3 * np.log(b / best) ** 2)
         * np.exp(0.01 * noise.standard_normal())}
        for name, best in (("Muon", 40), ("Lion", 10))
        for loss, scale in ((2.2, 1), (2.0, 2))
        for b in (4, 8, 16, 32, 64, 128)
        for seed in (0, 1)
    ]  # fmt: skip
    found = bss.fit_es(pd.DataFrame(rows), by=["optimizer"], resamples=100)
    ratios = found.differences().query("quantity == 'B_opt'")
    assert (ratios["low"] < 0.25).all() and (ratios["high"] > 0.25).all()
    lowest = found.penalties().query("penalty == 0")
    assert set(zip(lowest["optimizer"], lowest["batch"], strict=True)) == {
        ("Muon", 32.0), ("Lion", 8.0)
    }  # fmt: skip


def own_of(later):
    table = own_table(seed=int(later))
    return table.assign(loss=table["loss"] + 0.2 * later)


def branches_of(later):
    """With later, every checkpoint is at twice the tokens."""
    table = branches()
    return table.assign(
        fork=table["fork"] * (1 + later), tokens=table["tokens"] + table["fork"] * later
    )


def curves_of(later):
    law = CURVES._replace(L_0=CURVES.L_0 + 0.2 * later)
    return curves(CONSTANTS + TWO_STAGE, law, seed=int(later))


@pytest.mark.parametrize(
    ("fit", "table_of", "how", "quantity", "value"),
    [
        (bss.fit_own, own_of, {"law": LAW, "resamples": 20}, "L_0", 0.2),
        (bss.fit_branches, branches_of, {"resamples": 50}, "tokens at the switch", 2.0),
        pytest.param(
            bss.fit_curve, curves_of, {"clock": "sgd", "resamples": 10}, "L_0", 0.2,
            marks=pytest.mark.slow,  # two fits of loss curves: 10 CPU seconds
        ),
    ],
)  # fmt: skip
def test_other_kinds_differ_as_planted(tmp_path, fit, table_of, how, quantity, value):
    tables = [table_of(later).assign(optimizer=n) for later, n in ((False, "Muon"), (True, "Lion"))]
    found = fit(pd.concat(tables, ignore_index=True), by="optimizer", **how)
    assert [*found] == ["Muon", "Lion"] and found.left_out == ()
    row = found.differences().set_index("quantity").loc[quantity]
    assert row["low"] < value < row["high"] and row["value"] == pytest.approx(value, rel=0.2)
    found.plot().figure.savefig(tmp_path / "groups.png")
    found.save(tmp_path / "fit.json")
    assert bss.read_fit(tmp_path / "fit.json").to_dict() == found.to_dict()


def test_rows_without_a_group_are_told():
    table = planted().query("optimizer == 'Muon'")
    table.loc[table.index[4:], "family"] = None
    found = bss.fit_loss(table, by="family", resamples=20)
    assert [*found] == ["low"] and found.left_out == ("4 rows have no family: left out",)


@pytest.mark.parametrize("by", ["lab", "optimizer,lab", "", []])
def test_a_column_that_is_not_there_is_refused(by):
    with pytest.raises(InputError, match=r"by: no column .*choose from params, .*, optimizer"):
        bss.fit_loss(planted(), by=by)


def test_groups_that_all_have_one_batch_size_are_refused():
    with pytest.raises(InputError, match="by: no group can be fitted; batch=128: left out"):
        bss.fit_loss(planted(), by="batch")
