"""The next run: planted fits whose informative run is known, exactly or by a refit."""

import numpy as np
import pandas as pd
import pytest

from bss.advice.next_run import next_runs
from bss.cli import main
from bss.errors import InputError
from bss.laws import fit_critical, fit_es
from bss.laws.base import Options
from bss.tables import read_points
from bss.values import to_dict
from tests.cli.called import printed, refused

BATCHES = (64, 128, 256, 512, 1024, 4096)
SIZES = (10e6, 40e6, 160e6, 640e6)


@pytest.fixture(scope="module")
def critical(tmp_path_factory):
    """Curves S = a (1 + b/B) whose b grows as D^0.4, with a scatter about it."""
    scatter = np.random.default_rng(3).normal(0, 0.1, len(SIZES))
    rows = [
        (f"m{i}", n, 64, 20 * n, 2.5, batch, 1000 * (1 + 2 * n**0.3 * np.exp(scatter[i]) / batch))
        for i, n in enumerate(SIZES)
        for batch in BATCHES
    ]
    names = ["model", "params", "seq_len", "budget_tokens", "target_loss", "batch", "steps"]
    file = tmp_path_factory.mktemp("points") / "points.csv"
    pd.DataFrame(rows, columns=names).to_csv(file, index=False)
    return fit_critical(read_points(file), reference="smallest", options=Options(50))


def test_the_variance_of_an_exponent_is_that_of_least_squares_with_the_run_added(critical):
    law = critical.laws["tokens"]
    found = next_runs(critical, "exponent:D").drop_duplicates("tokens").set_index("tokens")
    for tokens in found.index:
        row = law.design({"tokens": [tokens]})
        added = np.linalg.inv(np.linalg.inv(law.inverse) + row.T @ row)
        removed = 1 - added[1, 1] / law.inverse[1, 1]
        assert found.loc[tokens, "variance_reduction"] == pytest.approx(removed, abs=0.04)
    most = found["variance_reduction"].max()  # at either end, equally far from the mean
    assert most == pytest.approx(found.loc[max(found.index), "variance_reduction"])
    assert found.index[0] == min(found.index)  # by far the cheapest, and far from the mean too
    assert found["FLOPs"].tolist() == pytest.approx((6 * found["params"] * found.index).tolist())


@pytest.fixture(scope="module")
def es(planted):
    points = planted.points(planted.laws["surface"], batches=(8, 16, 32, 64, 128))
    return fit_es(points, "surface", options=Options(200, draws=200)), points


@pytest.mark.slow
def test_the_run_named_first_narrows_B_opt_more_than_the_one_named_last(es, planted):
    fit, points = es
    runs = next_runs(fit, "B_opt@2").sort_values("variance_reduction")

    def width(batch):
        new = planted.points(planted.laws["surface"], batches=(int(batch),), seeds=8)
        more = pd.concat([points, new.assign(run="new " + new["run"])], ignore_index=True)
        best = fit_es(more, "surface", options=Options(200)).at(2.0).batches["B_opt"]
        return np.log(best.high / best.low)

    least, most = (float(runs["batch"].iloc[i]) for i in (0, -1))
    assert most < 8  # on the side of B_opt that no run is on
    assert width(most) < 0.8 * width(least)


def test_a_fit_is_asked_by_name_for_what_it_has(es, critical, tmp_path, capsys):
    fit, _ = es
    assert fit.goal.startswith("B_opt@") and critical.goal == "exponent:D"
    for goal in ("loss@2", "exponent:D", "B_opt"):
        with pytest.raises(InputError, match="expected B_opt@LOSS"):
            next_runs(fit, goal)
    with pytest.raises(InputError, match="the law does not reach it; choose another"):
        next_runs(fit, "B_opt@0.1")
    unsaved = fit_es(es[1], "surface", options=Options(20))
    with pytest.raises(InputError, match="has no draws"):
        next_runs(unsaved, unsaved.goal)


def test_the_command_prints_the_runs_of_each_kind_of_fit(es, tmp_path, capsys):
    import json

    (tmp_path / "es.json").write_text(json.dumps(to_dict(es[0])))
    told = printed(capsys, "next", f"{tmp_path}/es.json", "--goal", "B_opt@2")
    assert told["goal"] == "B_opt@2" and told["runs"][0]["relative_efficiency"] == 1
    shares = [run["variance_reduction"] for run in told["runs"]]
    assert all(0 <= share <= 1 for share in shares)
    curve = printed(capsys, "next", "results/late_switch/fit.json", "--goal", "loss@0:4 50%:16")
    assert {"batch", "tokens", "lr"} < set(curve["runs"][0])
    assert main(["next", f"{tmp_path}/es.json"]) == 0
    assert capsys.readouterr().out.startswith("Next run: batch ")
    assert "es.json" in refused(capsys, "next", f"{tmp_path}/missing_es.json")
