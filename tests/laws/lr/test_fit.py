"""Best learning rates of sweeps: published runs, planted laws, and what is not identified."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from tests.laws.lr.planted import planted_sweeps

PUBLISHED = "results/published/steplaw_rates.csv"


def bowls(best, *, lrs=(5e-4, 1e-3, 2e-3, 4e-3, 8e-3), noise=0.0):
    """Return a table of sweeps; `best` has the best LR by (params, tokens, batch)."""
    names = ("params", "tokens", "batch")
    rows = [
        dict(zip(names, size, strict=True)) | {"lr": lr, "loss": 3 + np.log(lr / at) ** 2 / 20}
        for size, at in best.items()
        for lr in lrs
    ]
    table = pd.DataFrame(rows)
    table["loss"] += noise * np.random.default_rng(0).standard_normal(len(table))
    return table


def grid(law, params=(1e8, 4e8, 1.6e9), tokens=(2e9, 8e9, 3.2e10), batch=(256,)):
    """Return the best LR of a law of N, D and B at each size of a grid."""
    return {size: law(*size) for size in itertools.product(params, tokens, batch)}


def power(N, D, B):
    """Return 2e-3 at 400M, 8B and batch 256."""
    return 2e-3 * (N / 4e8) ** -0.3 * (D / 8e9) ** 0.2 * (B / 256) ** 0.5


@pytest.fixture(scope="module")
def published():
    return pd.read_csv(PUBLISHED, comment="#")


def test_published_sweeps_at_one_batch(published):
    fit = bss.fit_lr(published[published["batch"] == 256])
    found = {symbol: one.value for symbol, one in fit.exponents.items()}
    assert found["N"] == pytest.approx(-0.673, abs=5e-4)
    assert found["D"] == pytest.approx(0.084, abs=5e-4)
    assert found["B"] is None and "one value, 256" in fit.exponents["B"].note
    assert fit.scatter == pytest.approx(0.23, abs=0.005)
    assert (len(fit.known), len(fit.optima)) == (40, 41)
    (bend,) = fit.bends
    assert bend.symbol == "D" and bend.at_low.low > 0 > bend.at_high.high
    assert any("one power of D does not fit" in text for text in fit.warnings)
    rows = fit.summary().set_index(["params", "tokens"])
    for budget, lr in ((8e9, 2.94e-3), (11.4e9, 3.12e-3)):
        assert rows["best_lr"][(214663680, budget)] == pytest.approx(lr, rel=0.01)


def test_published_sweeps_at_a_batch_by_a_rule(published):
    counts = published.groupby(["params", "tokens", "batch"]).size().reset_index(name="tried")
    counts = counts[counts["tried"] >= 6]
    off = np.abs(np.log(counts["batch"] / (195 * (counts["tokens"] / 1e10) ** 0.4)))
    sizes = counts.loc[off.groupby([counts["params"], counts["tokens"]]).idxmin()]
    table = published.merge(sizes[["params", "tokens", "batch"]])
    assert len(table) == 350
    fit = bss.fit_lr(table.rename(columns={"peak_lr": "rate"}), columns="lr=rate", seq_len=2048)
    assert len(fit.known) == len(fit.optima) == 40
    assert fit.exponents["N"].value == pytest.approx(-0.687, abs=5e-4)
    assert fit.exponents["D"].value == pytest.approx(0.242, abs=5e-4)
    assert "cannot be separated" in fit.exponents["B"].note
    assert fit.scatter == pytest.approx(0.18, abs=0.005) and not fit.bends


def test_order_copies_units_and_names_change_nothing(published):
    table = published[(published["batch"] == 256) & (published["params"] < 3e8)]
    fit = bss.fit_lr(table)
    shuffled = table.sample(frac=1, random_state=1)
    copied = pd.concat([table, table.iloc[:40]])
    in_tokens = table.assign(batch_tokens=table["batch"] * 2048).drop(columns="batch")
    named = table.rename(columns={"peak_lr": "lr", "loss": "eval_loss"})
    for other in (shuffled, copied, in_tokens, named, table.assign(params=table["params"] / 1e6)):
        again = bss.fit_lr(other)
        for symbol, one in fit.exponents.items():
            value = again.exponents[symbol].value
            assert value == (one.value and pytest.approx(one.value, rel=1e-6))
    assert bss.fit_lr(in_tokens).unit == "tokens"


def test_a_law_of_all_three_is_found():
    fit = bss.fit_lr(bowls(grid(power, batch=(64, 256, 1024)), lrs=np.geomspace(2e-4, 3e-2, 15)))
    assert [one.value for one in fit.exponents.values()] == pytest.approx(
        [-0.3, 0.2, 0.5], abs=1e-3
    )
    found = fit.predict(params="1B", tokens="10B", batch=512)
    assert found["lr"][0] == pytest.approx(power(1e9, 1e10, 512), rel=0.01)
    assert found["note"][0] == ""
    assert "outside the measured" in fit.predict(params="9B", tokens="10B", batch=512)["note"][0]


def test_budgets_in_proportion_to_sizes_give_no_two_exponents():
    best = {(n, 20 * n, 256): power(n, 20 * n, 256) for n in (1e8, 2e8, 4e8, 8e8, 1.6e9)}
    fit = bss.fit_lr(bowls(best))
    assert fit.exponents["N"].value == pytest.approx(-0.1, abs=1e-3)
    assert fit.exponents["D"].value is None
    assert "cannot be separated" in fit.exponents["D"].note


def test_a_lowest_loss_at_the_end_is_a_bound():
    fit = bss.fit_lr(bowls(grid(lambda *_: 0.05)))
    assert fit.law is None and {one.status for one in fit.optima} == {"at_boundary"}
    assert all(one.best.low == 4e-3 and one.best.high is None for one in fit.optima)
    assert all(one.value is None for one in fit.exponents.values())
    assert any("9 of 9 sweeps have their lowest loss at the end" in text for text in fit.warnings)
    with pytest.raises(InputError, match="no law"):
        fit.predict(params=5e8, tokens=5e9)


def test_lrs_that_diverged_bound_from_above():
    table = bowls({(1e8, 1e9, 64): 0.01})
    lost = table.iloc[[-1]].assign(lr=0.016, loss=np.nan)
    (one,) = bss.fit_lr(pd.concat([table, lost])).optima
    assert (one.best.value, one.best.low, one.best.high) == (None, 4e-3, 0.016)


def test_one_sweep_alone_has_a_best_lr():
    table = bowls({(1e8, 1e9, 64): 2e-3})[["lr", "loss"]]
    fit = bss.fit_lr(table)
    assert fit.best_lr().value == pytest.approx(2e-3)
    assert fit.best_lr().low < 2e-3 < fit.best_lr().high
    assert "no such column" in fit.exponents["N"].note


def test_one_lr_each_is_refused():
    with pytest.raises(InputError, match=r"^lr: each .* one learning rate; train with three"):
        bss.fit_lr(bowls(grid(power), lrs=(1e-3,)))


def test_a_setting_that_varies_is_told():
    table = bowls({(1e8, 1e9, 64): 2e-3})
    both = pd.concat([table.assign(decay=0.1), table.assign(decay=0.2, loss=table["loss"] + 0.1)])
    fit = bss.fit_lr(both)
    assert any("decay; the lowest loss over them is used" in text for text in fit.warnings)
    assert fit.best_lr().value == pytest.approx(2e-3)


def test_a_saved_fit_is_read_predicted_and_planned_with(tmp_path, capsys):
    path = tmp_path / "lr.json"
    bss.fit_lr(bowls(grid(power)), seq_len=1024).save(path)
    again = bss.read_fit(path)
    assert again.answer == bss.fit_lr(bowls(grid(power)), seq_len=1024).answer

    def call(line):
        assert main([*line.split(), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    wanted = pytest.approx(power(6e8, 1e10, 256), rel=0.01)
    predicted = call(f"predict --from {path} --params 600M --tokens 10B --batch 256")
    assert predicted["best_lr"]["value"] == wanted and predicted["outside"] == []
    plan = call(f"plan --tokens 10B --seq-len 1024 --batch 256 --lr from:{path} --params 600M")
    assert plan["segments"][0]["lr_start"] == plan["peak_lr"]["value"] == wanted
    advice = call(f"advise --params 600M --tokens 10B --seq-len 1024 --from {path}")
    assert advice["peak_lr"]["value"] == wanted
    assert any("batch" in text for text in advice["warnings"])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("predict --from {} --params 600M", "--tokens: missing; the best LR depends on it"),
        (
            "predict --from {} --params 9B --tokens 8B",
            "--params 9,000,000,000: outside the measured",
        ),
        (
            "plan --tokens 8B --seq-len 64 --batch 256 --lr from:{}",
            "--params: missing; the best LR",
        ),
        ("plan --tokens 8B --seq-len 64 --batch 256 --lr from:none.json", "none.json"),
        ("schedule --from {} --tokens 1M", "give a fit of kind"),
    ],
)
def test_a_question_that_lacks_something_is_one_line(line, says, tmp_path, capsys):
    path = tmp_path / "lr.json"
    bss.fit_lr(bowls(grid(power))).save(path)
    assert main(line.format(path).split()) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.slow  # 30 CPU seconds of planted tables
@pytest.mark.parametrize("scatter", [0.0, 0.1])
def test_intervals_hold_what_was_planted(scatter):
    held = {"lr": [], "exponent": []}
    bends = 0
    for seed in range(100):
        table, best, exponents = planted_sweeps(np.random.default_rng(seed), scatter=scatter)
        fit = bss.fit_lr(table)
        bends += len(fit.bends)
        for one in fit.known:
            truth = best[(one.params, one.tokens, one.batch)]
            held["lr"].append((one.best.low or 0) <= truth <= (one.best.high or np.inf))
        for symbol, one in fit.exponents.items():
            if one.value is not None:
                held["exponent"].append(one.low <= exponents[symbol] <= one.high)
    assert len(held["exponent"]) >= 200 and len(held["lr"]) >= 2000
    for name, found in held.items():
        assert 0.83 <= np.mean(found) <= 0.97, name
    assert bends <= 4
