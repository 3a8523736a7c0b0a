"""Every committed fit comes out again from the committed runs.

Estimates, residuals (and with them predicted losses and the objective) to 1e-6 relative; intervals
depend on the number of refits and are not compared. Where the results were made, every number
below came out bit for bit; the tolerance is for other processors.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.laws import CriticalFit, check_losses, fit_critical, fit_curve, fit_es, fit_loss
from bss.laws.base import Options
from bss.laws.es.values import REQUESTED
from bss.stats import phases_of
from bss.tables import read_points

RESULTS = Path(__file__).parents[2] / "results"
OF_INTERVALS = {"low", "high", "level", "note", "resamples", "method", "version", "warnings"}
QUICK = Options(resamples=8)


def committed(name):
    return json.loads((RESULTS / name).read_text())


def every(name, *quick):
    """The fits of a file as parameters of a test, all but the quick ones marked slow."""
    return [
        pytest.param(key, marks=[] if key in quick else pytest.mark.slow) for key in committed(name)
    ]


def numbers(value, path=""):
    """The numbers and texts of a fit's JSON by path, but those that speak of intervals."""
    if isinstance(value, dict):
        entries = [(f".{k}", x) for k, x in value.items() if k not in OF_INTERVALS]
    elif isinstance(value, list | tuple):
        entries = [(f"[{i}]", x) for i, x in enumerate(value)]
    else:
        return {path: value}
    return {at: x for key, part in entries for at, x in numbers(part, path + key).items()}


def assert_same(fit, expected, rel=1e-6):
    """Every committed number is in the fit, which may say more; errors near 0 are as good as 0."""
    found = numbers(fit.to_dict())
    for path, value in numbers(expected).items():
        if value is None:
            assert found[path] is None or math.isnan(found[path]), path
        elif isinstance(value, float):
            # A fold's fit of a law that is flat about its best ends where its last step falls.
            near = max(rel, 5e-3) if path.startswith(".comparison") else rel
            if path.startswith(".residuals.fitted"):  # committed ones were evaluated in float32
                near = max(rel, 1e-5)
            assert found[path] == pytest.approx(value, rel=near, abs=1e-8), path
        else:
            assert found[path] == value, path


def asked(law, entry):
    """The law that a fit was asked for; None where it was chosen."""
    return law if entry["choice"] == REQUESTED else None


@pytest.mark.slow
@pytest.mark.parametrize("law", every("demo/fits.json", "surface", "hyperbola"))
def test_laws_of_the_demo(law):
    points = read_points(RESULTS / "demo/points.csv")
    expected = committed("demo/fits.json")[law]
    if law == "piecewise":  # at the highest target no point decides where its pieces join
        expected["fits"][0] = {}
    assert_same(fit_es(points, asked(law, expected), options=QUICK), expected)


@pytest.mark.parametrize("group", every("es_wsd/fits.json"))
def test_laws_under_wsd(group):
    table = pd.read_csv(RESULTS / "es_wsd/points.csv", dtype={"run": str})
    phase, rates = group.split(", ")
    points = table.loc[(phases_of(table) == phase) & (table["rates"] == rates)]
    for law, expected in committed("es_wsd/fits.json")[group]["fits"].items():
        assert_same(fit_es(points, asked(law, expected), options=QUICK), expected)


@pytest.mark.parametrize("design", every("critical_batch/fits.json", "together"))
def test_critical_batches(design):
    expected = committed("critical_batch/fits.json")[design]
    columns = {"model": "model", "tokens": "budget_tokens", "seq_len": "seq_len"}
    points = read_points(RESULTS / "critical_batch/points.csv")
    chosen = [
        points.loc[np.all([points[there] == at[here] for here, there in columns.items()], axis=0)]
        for at in expected["models"]
    ]
    fit = fit_critical(
        pd.concat(chosen),
        overhead=expected["overhead"],
        reference=expected["reference_batch"],
        unit=expected["unit"],
        options=Options(2000, expected["level"]),
    )
    assert_same(fit, expected)


@pytest.mark.parametrize("design", committed("critical_batch/fits.json"))
def test_what_is_committed_is_read(design):
    entry = committed("critical_batch/fits.json")[design]
    assert_same(CriticalFit.from_dict(entry), entry)


@pytest.mark.slow
def test_the_law_of_whole_curves():
    pilots = pd.read_parquet(RESULTS / "late_switch/pilots.parquet")
    expected = committed("late_switch/fit.json")
    fit = fit_curve(pilots, warmup=50_000, since=expected["since"], options=QUICK)
    assert fit.clock == expected["clock"]
    assert_same(fit, {key: expected[key] for key in ("rmse", "cv_errors", "law")})


@pytest.mark.slow
def test_final_losses():
    """The last losses of the critical-batch runs; no such fit is committed, so it is told here."""
    parts = [RESULTS / f"critical_batch/c1-{size}/runs.parquet" for size in ("12k", "27k")]
    last = pd.concat([pd.read_parquet(part) for part in parts]).groupby("run").last()
    losses = last.drop(columns="lr").rename(columns={"peak_lr": "lr"})
    losses["loss"] = losses["eval_loss"]
    fit = fit_loss(check_losses(losses.reset_index(drop=True)), options=QUICK)
    assert fit.left_out["cell"] == pytest.approx(0.0197, rel=0.02)
    assert fit.rmse < fit.left_out["cell"]
