"""The three-term law on planted tables as teams have them: uneven, untuned, with outliers."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from bss.cli import main
from bss.errors import InputError
from bss.laws import TableFit, check_losses, fit_table
from bss.laws.final_loss.points import loss_points, read_losses
from bss.laws.final_loss.values import Law, final_loss, optimal_batch
from bss.laws.fitting.estimate import Options

LAW = Law(1.7, 400.0, 0.34, 12.0, 0.5, 180.0, 0.6)
SIZES = (2e7, 5e7, 1.6e8, 4e8, 1e9)


def planted(law=LAW, sizes=SIZES, noise=0.003, diverged=0.0, seed=0, keep=0.75):
    """Runs of batch and lr grids around their optima, a quarter of them missing."""
    generator = np.random.default_rng(seed)
    rows = []
    for params in sizes:
        for ratio in (10, 20, 60):
            tokens = ratio * params
            centre = optimal_batch(law, tokens)
            for shift in (-4, -3, -2, -1, 0, 1, 2, 3, 4):
                batch = 512 * max(round(centre * 2.0**shift / 512), 1)
                if generator.random() > keep:
                    continue
                loss = final_loss(law, params, tokens, batch)
                for lr in (5e-4, 1e-3, 2e-3):
                    tuned = loss + 0.02 * np.log2(lr / 1e-3) ** 2
                    told = tuned + noise * generator.standard_normal()
                    if generator.random() < diverged:
                        told = generator.choice([9.5, 10.8, np.nan])
                    rows.append((params, tokens, batch // 512, 512, lr, told))
    columns = ["params", "tokens", "batch", "seq_len", "lr", "loss"]
    return pd.DataFrame(rows, columns=pd.Index(columns))


def untuned(table):
    return table.loc[table["lr"] == 1e-3].drop(columns="lr")


def test_the_closed_form_is_the_minimum():
    for tokens in (1e9, 1e11):
        found = optimize.minimize_scalar(
            lambda log, tokens=tokens: final_loss(LAW, 1e8, tokens, np.exp(log)),
            bounds=(5, 25), method="bounded", options={"xatol": 1e-10},
        )  # fmt: skip
        assert optimal_batch(LAW, tokens) == pytest.approx(np.exp(found.x), rel=1e-4)  # type: ignore[attr-defined]
    growth = np.log(optimal_batch(LAW, 1e11) / optimal_batch(LAW, 1e9)) / np.log(100)
    assert growth == pytest.approx(LAW.c / (LAW.c + LAW.m))


def test_an_exact_table_gives_the_law_back():
    fit = fit_table(check_losses(planted(noise=0.0)), options=Options(20))
    np.testing.assert_allclose(list(fit.law), LAW, rtol=1e-3)
    sizes, batches = np.array([[3e7], [2e9]]), np.array([2e5, 1e6, 4e6])
    found = fit.predict(sizes, 4e10, batches)
    np.testing.assert_allclose(found, final_loss(LAW, sizes, 4e10, batches), rtol=1e-4)
    with pytest.raises(InputError, match="batch_tokens: 0 at a prediction"):
        fit.predict(3e7, 4e10, 0)
    assert fit.rmse < 1e-6
    assert fit.status == "converged"


@pytest.mark.parametrize("seed", [0, 1])
def test_a_noisy_uneven_table_with_diverged_rows_gives_the_optimum(seed):
    table = untuned(planted(diverged=0.05, seed=seed))
    fit = fit_table(check_losses(table), options=Options(50))
    exponent = LAW.c / (LAW.c + LAW.m)
    assert fit.B_opt_exponent.value == pytest.approx(exponent, abs=0.06)
    for at in fit.optima:
        truth = optimal_batch(LAW, at.tokens)
        assert at.batch.value == pytest.approx(truth, rel=0.2)
    assert fit.rmse < 0.006
    diverged = table["loss"].to_numpy() > 9
    assert fit.outliers.sum() >= diverged.sum()
    assert abs(fit.law.L_0 - LAW.L_0) < 0.15
    assert all(error < 0.05 for error in fit.held_out.values())


@pytest.mark.slow
def test_intervals_hold_the_planted_optimum():
    covered = []
    for seed in range(10):
        fit = fit_table(check_losses(untuned(planted(seed=100 + seed))), options=Options(100))
        e = fit.B_opt_exponent
        assert e.low is not None and e.high is not None
        covered.append(e.low <= LAW.c / (LAW.c + LAW.m) <= e.high)
    assert np.mean(covered) >= 0.7


def test_the_minimum_over_the_rate_is_taken_and_counted():
    table = check_losses(planted(diverged=0.05))
    points, warnings = loss_points(table)
    finite = table.loc[np.isfinite(table["loss"])]
    assert len(points.loss) == len(finite.groupby(["params", "tokens", "batch_tokens"]))
    assert points.loss.max() < 9
    assert set(points.rates) <= {1, 2, 3}
    assert any("diverged" in text for text in warnings)


@pytest.mark.slow
def test_one_size_is_the_surface_of_steps_and_batch():
    law = LAW._replace(m=1.0, M=3e4)
    fit = fit_table(check_losses(planted(law, (5e7,), noise=0.0, keep=1.0)), options=Options(20))
    assert np.isnan(fit.law.A)
    assert fit.law.m == pytest.approx(1.0, rel=0.01)
    assert fit.held_out_by == "tokens"
    floor = LAW.L_0 + LAW.A * 5e7**-LAW.a
    assert fit.law.L_0 / floor == pytest.approx(1, rel=1e-3)
    assert fit.intervals["A"].value is None


def test_what_is_not_bracketed_is_told():
    table = planted()
    rates = table.loc[table["lr"] >= 1e-3]
    assert any("learning rate not bracketed" in t for t in loss_points(check_losses(rates))[1])
    assert any("no column lr" in t for t in loss_points(check_losses(untuned(table)))[1])
    best = optimal_batch(LAW, table["tokens"].to_numpy())
    small = table.loc[table["batch"] * table["seq_len"] < best / 1.5]
    fit = fit_table(check_losses(small), options=Options(20))
    assert any("batch not bracketed" in text for text in fit.warnings)
    assert not any(at.bracketed for at in fit.optima)


def test_the_command_prints_the_law_and_the_optima(tmp_path, capsys, reads_back):
    path = tmp_path / "runs.csv"
    path.write_text("# ours\n" + planted(diverged=0.05).to_csv(index=False))
    assert main(["fit", "table", str(path), "--resamples", "50", "--json"]) == 0
    fit = json.loads(capsys.readouterr().out)
    again = reads_back(TableFit, fit)
    assert fit["points"] == len(again.points.loss) and fit["outliers"] == again.outliers.sum()
    assert set(fit["law"]) == {"L_0", "A", "a", "C", "c", "M", "m"}
    assert {"rmse", "max_error", "warnings"} < set(fit)
    assert fit["B_opt_exponent"]["low"] < fit["B_opt_exponent"]["value"]
    assert {"params", "tokens", "B_opt_tokens"} < set(fit["optima"][0])
    assert main(["fit", "table", str(path), "--resamples", "50"]) == 0
    assert "B_opt grows as D^" in capsys.readouterr().out


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
        (lambda t: t.loc[:12], "points of (params"),
    ],
)
def test_bad_tables_are_refused_in_one_line(tmp_path, capsys, change, told):
    path = tmp_path / "runs.csv"
    change(planted()).to_csv(path, index=False)
    assert main(["fit", "table", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


def test_a_missing_file_is_told():
    with pytest.raises(InputError, match="no such file"):
        read_losses("nowhere.csv")
