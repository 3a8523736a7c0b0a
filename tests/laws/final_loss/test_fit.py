"""The law of final losses on planted tables as teams have them: uneven, untuned, with outliers."""

import json

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.errors import InputError
from bss.laws import LossFit, check_losses, fit_loss
from bss.laws.base import Options
from bss.laws.final_loss.table import loss_points, read_losses
from bss.policies import policy_named
from bss.policies.policy import Basis, Limits
from tests import drawn

QUICK = Options(30)


class Law:
    """L = L_0 + A·N^-a + C·S^-c + M·B^-m, sizes at (4e8, 2e10, 5e5); B_opt does not depend on N."""

    def losses(self, N, D, B):
        slow = 0.5 * (N / 4e8) ** -0.35
        return 1.5 + slow + 0.082 * ((D / 2e10) / (B / 5e5)) ** -0.6 + 0.082 * (B / 5e5) ** -0.6

    def best(self, D):
        return 5e5 * (D / 2e10) ** 0.5


LAW = Law()


def planted(sizes=(2e8, 4e8, 8e8), ratios=(20, 60, 200), noise=0.0, seed=0):
    """Nine batches about the best at each (N, D)."""
    generator, rows = np.random.default_rng(seed), []
    for params in sizes:
        for ratio in ratios:
            tokens = ratio * params
            best = LAW.best(tokens)
            for shift in range(-4, 5):
                batch = 512 * max(round(best * 1.6**shift / 512), 1)
                loss = float(LAW.losses(params, tokens, batch))
                loss += noise * generator.standard_normal()
                rows.append((params, tokens, batch // 512, 512, 1e-3 * 1.3**shift, loss))
    names = ["params", "tokens", "batch", "seq_len", "lr", "loss"]
    return pd.DataFrame(rows, columns=pd.Index(names))


def test_an_exact_table_is_predicted_where_it_was_left_out():
    fit = fit_loss(check_losses(planted()), options=QUICK)
    assert np.nanmax(np.abs(fit.cell_error)) < 0.01
    for at in fit.optima:
        assert at.batch.value == pytest.approx(LAW.best(at.tokens), rel=0.05)
        assert at.batch.low < LAW.best(at.tokens) < at.batch.high
    assert fit.losses(3e8, 3e10, 4e5) == pytest.approx(LAW.losses(3e8, 3e10, 4e5), abs=1e-3)
    assert fit.status == "converged" and fit.cv_error < 0.004
    elsewhere = fit.best_batch(3e8, 3e10)
    assert elsewhere.method == "power law" and elsewhere.low < LAW.best(3e10) < elsewhere.high
    assert fit.B_opt_exponents["D"].value == pytest.approx(0.5, abs=0.05)
    table = pd.DataFrame({"params": [3e8], "tokens": [3e10], "batch_tokens": [4e5]})
    (row,) = fit.predict(table).to_dict("records")
    assert row["loss_low"] < LAW.losses(3e8, 3e10, 4e5) < row["loss_high"]
    assert fit.residuals()["residual"].abs().max() < 0.01
    assert list(fit.summary()["status"]) == ["ok"] * 9


@pytest.mark.slow
def test_draws_have_a_number_and_a_seed():
    table = check_losses(small(planted(noise=0.001)))
    first, again, other, more = (
        fit_loss(table, options=Options(n, seed=seed))
        for n, seed in ((200, 0), (200, 0), (200, 1), (400, 0))
    )
    assert first.optima == again.optima
    assert first.optima[0].batch.value == other.optima[0].batch.value
    ends = [fit.optima[0].batch.high for fit in (first, other, more)]
    assert len(set(ends)) == 3 and max(ends) < 1.1 * min(ends)
    assert more.resamples == more.law.resamples == 400


def small(table):
    """One model, three budgets."""
    return table.loc[table["params"] == 4e8]


def test_diverged_rows_neither_count_nor_are_dropped_for_their_residual():
    clean = small(planted(noise=0.001))
    diverged = clean.copy()
    diverged.loc[diverged.index[[0, 9]], "loss"] = [9.5, 10.8]
    diverged.loc[diverged.index[[8]], "loss"] = np.nan
    first, second = (fit_loss(check_losses(t), options=QUICK) for t in (clean, diverged))
    assert len(second.law.points.loss) == len(first.law.points.loss) - 1
    for one, other in zip(first.optima, second.optima, strict=True):
        assert other.batch.value == pytest.approx(one.batch.value, rel=0.1)
    assert any("1 rows without a finite loss" in text for text in second.warnings)
    assert any("2 losses far above the best" in text for text in second.warnings)
    assert (second.left_out["cell"] or 1) < 0.02


def test_what_the_runs_cannot_tell_has_no_value():
    table = small(planted(noise=0.001))
    best = {D: LAW.best(D) for D in table["tokens"].unique()}
    tokens = table["batch"] * 512
    large = table.loc[tokens >= 0.99 * table["tokens"].map(best)]
    fit = fit_loss(check_losses(large), options=QUICK)
    for at in fit.optima:
        assert at.batch.value is None and at.batch.status == "at_boundary"
        assert at.batch.low is None and at.batch.high is not None
        assert (at.batch.high or 0) >= best[at.tokens] and at.batch.low is None
    untold = fit_loss(check_losses(table.drop(columns="lr")), options=QUICK)
    assert all(at.batch.value is not None for at in untold.optima)
    assert any("no column lr" in text for text in untold.warnings)
    again = LossFit.from_dict(json.loads(json.dumps(untold.to_dict())))
    pd.testing.assert_frame_equal(again.summary(), untold.summary())


def test_the_column_of_a_run_table_is_the_learning_rate_too():
    table = planted()
    named = check_losses(table.rename(columns={"lr": "peak_lr"}))
    pd.testing.assert_frame_equal(named, check_losses(table), check_like=True)


def test_the_best_batch_at_one_rate_is_not_told_as_b_opt_anywhere(tmp_path, capsys):
    fit = fit_loss(check_losses(small(planted(noise=0.001)).assign(lr=3e-4)), options=QUICK)
    for at in fit.optima:
        assert at.batch.value is None
        assert at.batch.status == "single_lr" and "not B_opt; retune at two" in at.batch.note
    assert all(found.value is None for found in fit.B_opt_exponents.values())
    kept = tmp_path / "fit.json"
    kept.write_text(json.dumps(fit.to_dict()))
    ask = ["predict", "--from", str(kept), "--params", "400M", "--tokens", "20B"]
    assert main([*ask, "--batch", "512"]) == 0
    assert "no measured (params, tokens)" in capsys.readouterr().out
    assert main(ask) == 2
    assert "--batch: missing, and B_opt is unidentified" in capsys.readouterr().err
    with pytest.raises(InputError, match="B_opt at 400M and 8B tokens is unidentified"):
        policy_named("best-batch", ["params=400M"])(Basis(512, fit), 10**10, Limits())


def test_one_model_and_one_budget_is_a_valley_and_no_law():
    table = planted(sizes=(4e8,), ratios=(60,), noise=0.0005).iloc[2:7]
    fit = fit_loss(check_losses(table), options=QUICK)
    (at,) = fit.optima
    assert at.batch.value == pytest.approx(LAW.best(2.4e10), rel=0.15)
    assert fit.left_out["params"] is fit.left_out["tokens"] is None
    with pytest.raises(InputError, match=r"tokens: 4.8e[+]10 is 2 times outside"):
        fit.prediction(4e8, 4.8e10, 5e5)


def test_seeds_settings_and_near_equal_rates_are_told_apart():
    table = small(planted())
    seeds = [table.assign(seed=s, loss=table["loss"] + d) for s, d in enumerate((-0.01, 0.01))]
    points, warnings = loss_points(check_losses(pd.concat(seeds, ignore_index=True)))
    np.testing.assert_allclose(points.loss, loss_points(check_losses(table))[0].loss)
    assert points.noise == pytest.approx(0.01 * np.sqrt(2))
    assert not any("not used" in text for text in warnings)
    beta2 = [
        table.assign(beta2=b, loss=table["loss"] + 0.01 * i) for i, b in enumerate((0.9, 0.95))
    ]
    points, warnings = loss_points(check_losses(pd.concat(beta2, ignore_index=True)))
    np.testing.assert_allclose(np.sort(points.loss), np.sort(table["loss"]))
    assert np.isnan(points.noise)
    assert any("beta2" in text for text in warnings)
    near = pd.concat([table, table.assign(lr=table["lr"] * 1.001)], ignore_index=True)
    assert len(loss_points(check_losses(near))[0].loss) == len(table)


def test_budgets_of_whole_steps_are_one():
    table = small(planted())
    steps = (table["tokens"] // (table["batch"] * 512)) * table["batch"] * 512
    points, _ = loss_points(check_losses(table.assign(tokens=steps)))
    assert len(np.unique(points.tokens)) > 3 and points.cell.max() == 2


def test_where_rates_vary_little_the_minimum_is_taken():
    table = small(planted())
    tried = [table.assign(lr=lr, loss=table["loss"] + d) for lr, d in ((1e-3, 0.02), (2e-3, 0.0))]
    points, warnings = loss_points(check_losses(pd.concat(tried, ignore_index=True)))
    assert not points.with_lr and set(points.lr) == {2e-3}
    np.testing.assert_allclose(np.sort(points.loss), np.sort(table["loss"]), rtol=1e-6)
    assert any("learning rate not bracketed at 27 of 27" in text for text in warnings)
    told = table.assign(rates_tried=9, rate_bracketed=1)
    points, warnings = loss_points(check_losses(told))
    assert not points.with_lr and not warnings


def test_a_higher_rate_that_diverged_brackets_the_best_one():
    table = small(planted())
    tried = [table.assign(lr=lr, loss=table["loss"] + d) for lr, d in ((1e-3, 0.02), (2e-3, 0.0))]
    for rate, open_ended in ((4e-3, False), (5e-4, True)):
        rows = [*tried, table.assign(lr=rate, loss=np.nan)]
        points, warnings = loss_points(check_losses(pd.concat(rows, ignore_index=True)))
        assert set(points.lr) == {2e-3}
        assert any("not bracketed" in text for text in warnings) == open_ended


def test_the_command_prints_the_law_and_answers_for_a_run(saved, tmp_path, capsys, reads_back):
    path, kept = tmp_path / "runs.csv", tmp_path / "table.json"
    path.write_text("# ours\n" + small(planted(noise=0.001)).to_csv(index=False))
    call = ["fit", "loss", str(path), "--resamples", "30"]
    figure = tmp_path / "valleys.png"
    assert main([*call, "--json", "--plot", str(figure)]) == 0
    printed = capsys.readouterr().out
    fit = json.loads(printed)
    assert not drawn.collisions(saved["valleys.png"])
    (valleys,) = (axis for axis in drawn.points(saved["valleys.png"]) if axis)
    assert valleys > 3 * (50 + 9)  # three valleys with nine runs each
    reads_back(LossFit, fit)
    assert set(fit["left_out"]) == {"cell", "params", "tokens"}
    assert {"law", "rmse", "B_opt_exponents", "warnings"} < set(fit)
    assert set(fit["optima"][0]) >= {"params", "tokens", "B_opt_tokens", "measured"}
    assert set(fit["optima"][0]["B_opt_tokens"]["ranges"][0]) == {"low", "high", "rise"}
    kept.write_text(printed)
    ask = ["predict", "--from", str(kept), "--params", "400M", "--tokens", "30B"]
    assert main([*ask, "--batch", "512", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"loss", "best_batch", "outside"} < set(answer)
    assert answer["loss"]["low"] < answer["loss"]["value"] < answer["loss"]["high"]
    assert main(ask) == 0
    assert "best_batch" in capsys.readouterr().out
    assert main([*ask[:-1], "3T", "--batch", "512"]) == 2
    assert "times outside" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.drop(columns="params"), "no column params"),
        (lambda t: t.drop(columns="seq_len"), "no column seq_len"),
        (lambda t: t.assign(tokens=0), "line 2: tokens is 0"),
        (lambda t: t.assign(batch="many"), "line 2: batch is many"),
        (lambda t: t.assign(loss=-1), "loss is -1"),
        (lambda t: t.assign(loss=np.nan), "no row has a finite one"),
        (lambda t: t.assign(batch_tokens=7), "batch_tokens is not batch times seq_len"),
        (lambda t: t.assign(batch=8), "1 different"),
        (lambda t: t.iloc[[0, 1, 2]], "3 points of (params, tokens, batch) for"),
        (lambda t: t.assign(model=["a", "b"] * 13 + ["a"]), "model is a, b at params 4e+08"),
    ],
)
def test_bad_tables_are_refused_in_one_line(tmp_path, capsys, change, told):
    path = tmp_path / "runs.csv"
    change(small(planted())).to_csv(path, index=False)
    assert main(["fit", "loss", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


def test_a_missing_file_is_told():
    with pytest.raises(InputError, match="no such file"):
        read_losses("nowhere.csv")


@pytest.mark.parametrize("count", [3, 8])
def test_batches_at_equal_steps_are_told(count):
    batch = 2.0 ** np.arange(14, 14 + count)
    table = pd.DataFrame({"params": 1e8, "batch_tokens": batch, "tokens": 5000 * batch})
    table = check_losses(table.assign(loss=2 + batch**-0.1, lr=1e-3))
    told = "the same number of steps (5000)"
    if count == 3:
        with pytest.raises(InputError, match=r"add runs; .* same number of steps"):
            fit_loss(table)
    else:
        assert told in " ".join(fit_loss(table, options=Options(2)).warnings)


def test_at_one_lr_large_models_may_waste_more_steps_and_fits_of_before_are_read():
    table = check_losses(planted(noise=0.003))
    fit = fit_loss(table.assign(lr=1e-3), forms=["bowl"], options=Options(8))
    assert fit.parameters["t"].value is not None
    tuned = fit_loss(table, forms=["bowl"], options=Options(8))
    assert "fixed" in tuned.parameters["t"].note
    entry = tuned.to_dict()
    entry["law"]["theta"].pop()
    assert LossFit.from_dict(entry).law.theta.tolist() == tuned.law.theta.tolist()
