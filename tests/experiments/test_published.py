"""Published measurements: units and sums of the tables, and derived numbers made again."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import optima
from experiments.published import analysis, critical, sizes, tuning
from experiments.published.answers import FINDINGS, answered, measured
from experiments.published.atlas import ATLAS, COLUMNS, atlas


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


def assert_committed(name, fresh, source=None):
    """A table is the committed one, or its rows of a source, within its four digits."""
    kept = pd.read_csv(analysis.DERIVED / f"{name}.csv")
    if source:
        kept = kept[kept["source"] == source]
    left, right = (table.reset_index(drop=True) for table in (fresh, kept))
    pd.testing.assert_frame_equal(left, right, rtol=2e-3, atol=1e-3, check_dtype=False)


@pytest.mark.parametrize("name", ["exponents", "ramps", "ramp_pairs"])
def test_the_derived_tables_are_those_of_their_command(name):
    assert_committed(name, getattr(analysis, name)())


@pytest.mark.slow
def test_the_8b_tables_are_those_of_the_curves():
    points = critical.points_8b()
    assert_committed("minimum_8b", critical.smallest_against_next(points))
    found = critical.critical(points)
    assert_committed("critical", found)
    assert_committed("soonest_8b", critical.soonest(found))


def test_tables_of_best_lrs_are_those_of_the_open_runs():
    runs = tuning.steplaw()
    assert_committed("lr_powers", tuning.lr_powers("step-law table", runs), "step-law table")
    assert_committed("kept_lr", tuning.kept_lr("step-law table", runs), "step-law table")
    assert_committed("beta2_gains", tuning.beta2_gains())


def test_the_effects_are_those_of_the_derived_tables():
    kept = pd.read_csv(FINDINGS).set_index("key")
    fresh = measured()
    assert set(kept.index) == set(fresh)
    for key, one in fresh.items():
        assert kept.loc[key, "effect"] == pytest.approx(one.effect.value, rel=1e-6)
        assert kept.loc[key, "conditions"] == str(one.conditions)
    assert kept["conditions"].str.contains("public: ").all()
    assert kept["asked_before"].eq("not registered").all()


@pytest.mark.slow
def test_the_answers_are_those_of_the_derived_tables():
    assert pd.read_csv(FINDINGS)["answer"].tolist() == answered()["answer"].tolist()


def test_the_atlas_is_that_of_the_tables_and_has_plausible_numbers():
    kept = pd.read_csv(ATLAS)
    pd.testing.assert_frame_equal(kept, atlas(), rtol=1e-5, check_dtype=False)
    assert [*kept] == COLUMNS and kept[["source", "licence", "quantity"]].notna().all(axis=None)
    bounded = kept[["low", "high"]].notna().any(axis=1)
    assert (kept["value"].notna() | bounded).all()
    assert kept["params"].dropna().between(1e7, 7e11).all()
    assert kept["tokens"].dropna().between(5e6, 1e12).all()
    sized = kept.dropna(subset=["batch_tokens", "tokens"])
    assert (sized["batch_tokens"] < sized["tokens"]).all()
    is_loss = kept["quantity"].str.contains("^(?:training |held-out )?loss(?! diff)")
    assert kept.loc[is_loss, "value"].between(2, 5).all() and is_loss.sum() > 2700


def test_numbers_in_sentences_of_the_page_are_those_of_the_tables():
    text = " ".join(Path("docs/scale.md").read_text().split())
    ours = pd.read_csv("results/late_switch/findings.csv").set_index("key")["effect"]
    assert ours["decayed_other"] > 0 > ours["averaged_other"]
    late, mean, decayed = (
        f"{abs(ours[key]):.3f}" for key in ("late_constant", "averaged_other", "decayed_other")
    )
    expected = (
        f"gains {late} nats at constant LR, {mean} with averaged weights, and loses {decayed}"
    )
    assert expected in text
    steps = pd.read_csv(analysis.DERIVED / "ramp_steps.csv").set_index("loss")
    first, last = (f"{steps.loc[loss, 'tokens_ratio']:.0%}" for loss in (4.5, 3.3))
    assert f"needs {first} of the tokens to loss 4.5, and {last} to loss 3.3" in text
    assert (steps["steps_ramp"] < steps["steps_constant"]).tolist() == [False] * 5 + [True]
    found = pd.read_csv(analysis.DERIVED / "critical.csv").set_index(["source", "model"])
    [point] = found.loc[[("mlperf points", "llama31_8b")], "kappa"]
    assert f"give {point / 1e6:.2f}M" in text
    answer = pd.read_csv(FINDINGS).set_index("key")
    steplaw, eurollm = (
        f"{answer.loc[f'public_lr_{key}', 'effect']:.2f}" for key in ("steplaw", "eurollm")
    )
    assert f"differ: {steplaw} and {eurollm}" in text
    ramps = answer[answer.index.str.contains("ramp|no_decay")]
    assert ("supported" not in ramps["answer"].tolist()) == ("No answer is *supported*" in text)
    pairs = analysis.ramp_pairs()
    large = pairs.loc[pairs["group"].str.endswith("1M tokens or more"), "mnats"]
    assert (large > 0).all() and "its loss is higher in all pairs" in text


def test_sizes_counts_and_differences_on_the_page_are_those_of_the_tables():
    text = " ".join(Path("docs/scale.md").read_text().split())
    curves = pd.read_parquet("results/published/mlperf_llama31_8b_curves.parquet")
    batches = sorted(curves["batch"].unique())
    told = f"{curves['run'].nunique()} curves of an 8B model at four batch sizes from {batches[0]}"
    assert f"{told} to {batches[-1]} sequences" in text and len(batches) == 4
    pairs = analysis.ramp_pairs().set_index("group")
    saved = pairs.loc["cosine, constant batch below 1M tokens", "steps_saved"]
    assert f"saves {saved.mean():.0%} of the steps" in text and saved.std() < 0.005
    kept, decayed = (
        -pairs.loc[f"{phase}, constant batch 4.19M tokens", "mnats"] / 1000
        for phase in ("not decayed to 0", "decayed to 0")
    )
    assert f"{kept:.3f} nats, shrinks to {decayed:.3f} nats" in text
    ramps = pd.read_csv("results/published/batch_ramps.csv", comment="#").set_index("source")
    seesaw = ramps.loc["seesaw", "params"] / 1e6
    assert f"models of {seesaw.min():.0f}M to {seesaw.max():.0f}M parameters" in text
    [[constant, growing]] = ramps.loc[
        ["modded-nanogpt record 46"], ["runs_constant", "runs_ramp"]
    ].to_numpy()
    assert {f"({constant:g} and {growing:g} runs)", f"({growing:g} and {constant:g} runs)"} & {
        part for part in re.findall(r"\(\d+ and \d+ runs\)", text)
    }
    power = pd.read_csv(FINDINGS).set_index("key").loc["public_checkpoint", "effect"]
    assert f"as a power of −{abs(power):.1f}" in text and power < 0
    found = pd.read_csv(analysis.DERIVED / "critical.csv").set_index(["source", "model"])
    [small] = found.loc[[("zhang", "85M")], "kappa"]
    large = found.loc["mlperf curves"].query("target_loss == 3.3").iloc[0]
    assert abs(np.log(small / large["kappa"])) < 0.05  # "nearly equal values"


def test_the_column_of_public_runs_in_readme_is_that_of_the_findings():
    text = Path("README.md").read_text()
    kept = pd.read_csv(FINDINGS).set_index("key")
    assert "public runs, 48M to 175B" in text
    assert kept.loc["public_minimum", "answer"] == "contradicted"
    assert "8B: batch 16 of 16–64 needs the fewest tokens, to loss 3.3" in text
    assert kept.loc["public_ramp_small":"public_ramp_step", "low"].max() < 0
    assert "no clear gain under a decay (151M–571M)" in text
    growth = kept.loc[["public_growth_steplaw", "public_growth_eurollm"], "effect"]
    assert f"B_opt grows as tokens^{growth.mean():.1f} (to 1.7B)" in text
    gain = -kept.loc["public_optimizer", "effect"]
    muon = f"at 2.1M tokens the loss rises by {gain:.3f} nats less with Muon than with Adam (85M)"
    assert muon in text


def test_planted_powers_of_the_best_batch_are_slopes_per_seed():
    rows = []
    for seed, power in enumerate((0.3, 0.5, 0.7)):
        for excess in (0.3, 0.2, 0.1, 0.05):
            fewest = 1e5 / excess
            row = {"seed": seed, "excess": excess, "B_opt": fewest**power}
            rows += [row | {"tokens_to_target": fewest * more} for more in (1, 1.5)]
    table = pd.DataFrame(rows)
    optima = table.drop_duplicates(["seed", "excess"])[["seed", "excess", "B_opt"]]
    points = table[["seed", "excess", "tokens_to_target"]]
    assert sizes.seed_slopes(optima, points) == pytest.approx([0.3, 0.5, 0.7])
    bound = optima.assign(B_opt=optima["B_opt"].where(optima["excess"] > 0.1))
    assert len(sizes.seed_slopes(bound, points)) == 0  # two points make no slope


def test_exponents_of_sizes_are_those_of_the_tables():
    found = pd.concat([sizes.critical_exponents(), sizes.optimum_exponents()])
    assert (found["low"] < found["value"]).all() and (found["value"] < found["high"]).all()
    own = found.set_index(["name", "variable"])["value"]
    answer = pd.read_csv(FINDINGS).set_index("key")["effect"]
    assert own["8B, MLPerf", sizes.TOKENS] == pytest.approx(answer["public_data"])
    ours = pd.read_csv("results/critical_batch/findings.csv").set_index("key")["effect"]
    assert own["7k–49k", sizes.BOTH] == pytest.approx(ours["together_other"], abs=1e-3)
    assert found.loc[~found["public"], "variable"].eq(sizes.TOKENS).sum() >= 5


def _bowl(ratio, lr):
    best = 2.0**-9 * ratio**0.5
    return 3 + 0.01 * np.log2(lr / best) ** 2 + 0.001 * np.log2(ratio) ** 2


def test_planted_powers_and_penalties_of_lrs_are_found():
    lrs = 2.0 ** np.arange(-12, -3)
    rows = [(1e8, 1e9, b, lr, _bowl(b / 64, lr)) for b in (32, 64, 256) for lr in lrs]
    runs = pd.DataFrame(rows, columns=["params", "tokens", "batch", "lr", "loss"])
    assert tuning.lr_powers("planted", runs)["power"].tolist() == pytest.approx([0.5])
    [cost] = tuning.kept_lr("planted", runs).to_dict("records")
    assert (cost["tuned_mnats"], cost["kept_mnats"]) == pytest.approx((4, 14))


def test_a_planted_critical_batch_is_found_and_the_smallest_batch_is_compared():
    rows = [
        (b, 1000 * (1 + 24 / b) * (1 + 0.01 * e), 3.3, run)
        for b in (16, 32, 64, 128) for run, e in enumerate((-1, 0, 1))
    ]  # fmt: skip
    cell = pd.DataFrame(rows, columns=["batch", "steps", "target_loss", "run"])
    shape, draws = critical._fitted(cell)
    assert float(shape.kappa) == pytest.approx(24, rel=1e-3)
    assert np.quantile(draws, 0.025) < 24 < np.quantile(draws, 0.975)
    tokens = cell.assign(tokens_to_target=cell["steps"] * cell["batch"])
    [row] = critical.smallest_against_next(tokens).to_dict("records")
    assert row["log_tokens"] == pytest.approx(np.log(16 * 2.5 / (32 * 1.75)), rel=1e-6)


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
    repeated = {"runs": 2, "loss_min": 3.0, "loss_max": 3.001128}
    pd.DataFrame({**table, **repeated, "batch_tokens": [524288, 131072]}).to_csv(tmp_path / "t.csv")
    (row,) = tuning.penalties(tmp_path / "t.csv").to_dict("records")
    assert row["batch_tokens"] == 524288 and row["mnats"] == pytest.approx(20)
    assert row["error"] == pytest.approx(1) and row["freedom"] == 2
    committed = pd.read_csv(analysis.DERIVED / "penalties.csv")
    assert len(committed) == 30 and (committed["mnats"] > 0).all()


@pytest.mark.skipif("PUBLISHED_TABLES" not in os.environ, reason="needs tables without a licence")
def test_what_is_derived_from_tables_without_a_licence():
    tables = Path(os.environ["PUBLISHED_TABLES"])
    for name, cells in optima.without_licence(tables).items():
        assert cells == optima.derived_optima(name)
    assert_committed("penalties", tuning.penalties(tables / "optimizer_batch.csv"))
    assert_committed("branches", tuning.branches(tables / "muon_branch_ends.csv"))
    assert_committed("ramp_steps", tuning.ramp_steps(tables / "nanogpt_ramp_curves.csv"))
    dense = pd.read_csv(tables / "openeurollm.csv", comment="#")
    for name, numbers in (("lr_powers", tuning.lr_powers), ("kept_lr", tuning.kept_lr)):
        assert_committed(name, numbers("openeurollm", dense), "openeurollm")
