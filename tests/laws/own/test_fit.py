"""A law from outside the package gets all that the laws of the package have."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import bss
from bss.cli import main
from bss.errors import InputError
from bss.laws import OwnFit, OwnLaw, Parameter, fit_from_dict
from bss.laws.base import Options
from bss.laws.own.data import own_data
from bss.laws.own.law import OWN_LAWS
from tests.laws.own import data_law
from tests.laws.own.data_law import LAW

TRUTH = {"L_0": 1.7, "A": 0.4, "a": 0.35, "G": 0.6, "g": 0.3}
NAME = "tests.laws.own.data_law:LAW"


def planted(seed=0, noise=0.003):
    """Losses of five sizes, four budgets and two seeds."""
    draw = np.random.default_rng(seed)
    rows = [
        {"run": f"{n:g}-{d:g}-{s}", "params": n, "tokens": d}
        for n in (3e7, 1e8, 3e8, 1e9, 3e9)
        for d in (1e9, 3e9, 1e10, 3e10)
        for s in range(2)
    ]
    table = pd.DataFrame(rows)
    loss = 1.7 + 0.4 * (table["params"] / 1e8) ** -0.35 + 0.6 * (table["tokens"] / 1e9) ** -0.3
    return table.assign(loss=loss * np.exp(noise * draw.standard_normal(len(table))))


@pytest.fixture(scope="module")
def fit():
    return bss.fit_own(planted(), LAW)


def test_it_is_short_and_its_fit_recovers_what_was_planted(fit):
    assert len(Path(data_law.__file__).read_text().splitlines()) <= 60
    assert fit.status == "converged"
    for name, one in fit.parameters.items():
        assert one.low < one.value < one.high
        assert one.low / 1.05 < TRUTH[name] < one.high * 1.05
    assert fit.rmse == pytest.approx(0.003, rel=0.4)
    assert fit.rmse < fit.cv_error < 0.01


def test_it_is_read_back_only_if_a_person_names_the_law(fit):
    entry = json.loads(json.dumps(fit.to_dict()))
    assert entry["law"] == NAME
    assert fit_from_dict(entry) == fit
    OWN_LAWS.loaded.clear()
    with pytest.raises(InputError, match="is code that the file names"):
        fit_from_dict(entry)
    OWN_LAWS.load(NAME)
    assert isinstance(fit_from_dict(entry), OwnFit)


def test_rows_that_either_column_marks_as_diverged_are_left_out():
    table = planted()
    by_status = own_data(table.assign(status=["diverged", *["done"] * (len(table) - 1)]), LAW)
    by_flag = own_data(table.assign(diverged=["Yes", *["no"] * (len(table) - 1)]), LAW)
    assert len(by_status.measured) == len(by_flag.measured) == len(table) - 1
    assert by_flag.warnings == by_status.warnings == ("1 rows diverged and are left out",)


def test_its_predictions_and_its_plot_have_intervals_and_notes(fit):
    found = fit.predict(params=["1B", "70B"], tokens="10B")
    assert [*found] == ["loss", "loss_low", "loss_high", "note"]
    assert (found["loss_low"] < found["loss"]).all() and (found["loss"] < found["loss_high"]).all()
    assert found["loss"][0] == pytest.approx(1.7 + 0.4 * 10**-0.35 + 0.6 * 10**-0.3, abs=0.01)
    assert found["note"][0] == "" and found["note"][1].startswith("params 70,000,000,000: outside")
    with pytest.raises(InputError, match="batch: not in the law data law; give params, tokens"):
        fit.predict(batch=8)
    ax = fit.plot()
    assert ax.get_xlabel() == "fitted loss (nats)" and ax.get_legend().get_texts()
    pyplot.close(ax.figure)


def test_the_command_line_fits_predicts_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    planted().to_csv("losses.csv", index=False)
    command = ["fit", "own", "losses.csv", "--law", NAME, "--resamples", "20"]
    assert main([*command, "--plot", "law.png", "--json"]) == 0
    Path("law.json").write_text(capsys.readouterr().out)
    OWN_LAWS.loaded.clear()
    asked = ["predict", "--from", "law.json", "--params", "1B", "--tokens", "10B"]
    assert main(asked) == 2
    assert "is code that the file names" in capsys.readouterr().err
    assert main([*asked, "--law", NAME, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["loss_low"] < row["loss"] < row["loss_high"]
    assert main(["predict", "--from", "law.json", "--law", NAME, "--runs", "losses.csv"]) == 0
    assert "40 runs predicted" in capsys.readouterr().out
    assert main(["report", "law.json", "--law", NAME]) == 0
    page = Path("law.html").read_text()
    assert all(text in page for text in ("<h1>The law data law</h1>", "A law of a user", "0.303"))
    assert f"<pre>bss report law.json --law {NAME}</pre>" in page
    assert main(["next", "law.json", "--law", NAME]) == 2
    assert "of kind own, which states no next run" in capsys.readouterr().err


class Power(OwnLaw):
    """y = A·N^a."""

    formula, measured, columns = "y = A·N^a", "y", ("params",)
    parameters = (Parameter("A", 0.1, 10.0, log=True), Parameter("a", -2.0, 2.0))

    def value(self, p, x):
        return p.A * x["params"] ** p.a


class Product(Power):
    """Two parameters of which only the product is seen."""

    parameters = (*Power.parameters, Parameter("C", 0.1, 10.0, log=True))

    def value(self, p, x):
        return p.A * p.C * x["params"] ** p.a


class Twice(Power):
    """Two parameters of one name."""

    parameters = (*Power.parameters, Parameter("a", 0.0, 1.0))


class Named(Power):
    """A parameter with the name of a column."""

    parameters = (*Power.parameters, Parameter("params", 0.0, 1.0))


class Nowhere(Power):
    """Not finite at any start."""

    def value(self, p, x):
        return -p.A * x["params"] ** 2


class Failing(Power):
    """A formula that reads a column that it does not name."""

    def value(self, p, x):
        return p.A * x["tokens"]


class Flat(Power):
    """A law that falls where the values rise."""

    parameters = (Parameter("A", 0.1, 10.0, log=True), Parameter("a", -2.0, -0.5))


RISING = pd.DataFrame({"params": [1.0, 2.0, 4.0, 8.0, 16.0], "y": [1.0, 1.4, 2.1, 2.8, 4.0]})


def test_columns_of_a_law_have_other_names_in_fit_and_predict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"w": [1.0, 2.0, 4.0, 8.0, 16.0], "t": [3.0, 4.2, 6.1, 8.4, 12.1]})
    table.to_csv("widths.csv", index=False)
    law = "tests.laws.own.widths:LAW"
    how = ["--law", law, "--columns", "width=w,y=t", "--resamples", "20", "--json"]
    assert main(["fit", "own", "widths.csv", *how]) == 0
    Path("fit.json").write_text(capsys.readouterr().out)
    given = ["--runs", "widths.csv", "--columns", "width=w", "--law", law, "--json"]
    assert main(["predict", "--from", "fit.json", *given]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["width"] for run in runs] == table["w"].tolist()
    assert [run["y"] for run in runs] == pytest.approx(table["t"], rel=0.03)


@pytest.mark.parametrize(
    ("law", "table", "told"),
    [
        (Product("p"), RISING, "law p: A and C collide"),
        (Twice("t"), RISING, "law t: a is a parameter and another parameter"),
        (Named("n"), RISING, "law n: params is a parameter and a column"),
        (Nowhere("w"), RISING, "no start gives finite residuals"),
        (Failing("f"), RISING, "law f: its formula fails: KeyError"),
        (Flat("c"), RISING, "a constant has"),
        (Power("p"), RISING[:2], "table: 2 rows for the 2 parameters of the law p"),
        (Power("p"), RISING.drop(columns="y"), "the law p needs y; found params"),
        (Power("p"), RISING.assign(params=-1.0), "params is -1.0 in row 1"),
        (Power("p"), pd.concat([RISING, RISING["y"]], axis=1), "table: column y is there twice"),
    ],
)
def test_a_law_that_says_nothing_is_refused_in_one_line(law, table, told):
    with pytest.raises(InputError, match=told) as refusal:
        bss.fit_own(table, law, resamples=10)
    assert "\n" not in str(refusal.value)


class WithPrior(Power):
    """A law whose exponent has a prior far stronger than the data."""

    parameters = (Power.parameters[0], Parameter("a", -2.0, 2.0, usual=0.0, spread=1e-6))


def test_a_prior_pulls_a_parameter_to_its_usual_value():
    with pytest.raises(InputError, match="a constant has"):  # at a = 0 it is one
        bss.fit_own(RISING, WithPrior("prior"), resamples=10)
    free = bss.fit_own(RISING, Power("free"), resamples=10)
    assert free.values["a"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
def test_intervals_hold_what_was_planted_as_often_as_they_say():
    held = np.array(
        [
            [one.low <= TRUTH[name] <= one.high for name, one in fitted.parameters.items()]
            for fitted in (
                bss.fit_own(planted(seed), LAW, options=Options(100)) for seed in range(60)
            )
        ]
    )
    assert (held.mean(axis=0) > 0.8).all() and 0.85 < held.mean() < 0.96
