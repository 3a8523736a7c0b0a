"""One set of properties for the laws of the package and for one that is not the package's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bss.laws import fit_critical, fit_es, fit_own
from bss.laws.base import Estimate, Options
from bss.tables.schema import check_points
from tests.laws.own.data_law import LAW
from tests.planted import hyperbola, hyperbola_at, planted_points

QUICK = Options(100)


@dataclass(frozen=True)
class Planted:
    """A law with planted tables.

    Attributes:
        table: of a seed.
        fit: of a table, with constraints and options.
        estimate: of what was planted.
        truth: what was planted.
        fixed: the name of a parameter, and how it is read; None if the law has none to fix.
        measured: columns of what was measured, of which a wrong run has 1.5 times as much.
        noise: standard deviation of a measurement.
    """

    table: Callable[[int], pd.DataFrame]
    fit: Callable[..., Any]
    estimate: Callable[[Any], Estimate]
    truth: float
    fixed: tuple[str, Callable[[Any], float]] | None
    measured: tuple[str, ...]
    noise: Callable[[Any], float]


def es_points(seed):
    return planted_points(hyperbola, targets=(2.0,), generator=np.random.default_rng(seed))


def critical_steps(seed):
    draw = np.random.default_rng(seed)
    batches = np.array([16, 32, 64, 128, 256, 512, 1024, 2048])
    steps = 5000 * (1 + 200 / batches) * np.exp(0.01 * draw.standard_normal(len(batches)))
    columns = {"run": [f"b{batch}" for batch in batches], "batch": batches, "steps": steps}
    return pd.DataFrame(columns).assign(model="m", params=1e8, target_loss=3.0, seq_len=128)


def fit_steps(table, constraints="", options=QUICK):
    return fit_critical(
        check_points(table), reference="smallest", constraints=constraints, options=options
    )


def own_losses(seed):
    draw = np.random.default_rng(seed)
    sizes = [(n, d) for n in (3e7, 1e8, 3e8, 1e9, 3e9) for d in (1e9, 3e9, 1e10, 3e10)]
    table = pd.DataFrame(sizes * 2, columns=pd.Index(["params", "tokens"]))
    loss = 1.7 + 0.4 * (table["params"] / 1e8) ** -0.35 + 0.6 * (table["tokens"] / 1e9) ** -0.3
    names = [f"r{i}" for i in range(len(table))]
    return table.assign(run=names, loss=loss * np.exp(0.003 * draw.standard_normal(len(table))))


def fit_hyperbola(table, constraints="", options=QUICK):
    return fit_es(table, "hyperbola", constraints=constraints, options=options)


def fit_data_law(table, constraints="", options=QUICK):
    return fit_own(table, LAW, constraints=constraints, options=options)


LAWS = {
    "es": Planted(
        es_points,
        fit_hyperbola,
        lambda fit: fit.fits[0].batches["B_crit"],
        float(hyperbola_at(2.0).E_min / hyperbola_at(2.0).S_min),
        ("S_min", lambda fit: fit.fits[0].parameters["S_min"]),
        ("steps", "tokens_to_target"),
        lambda fit: fit.noise,
    ),
    "critical": Planted(
        critical_steps,
        fit_steps,
        lambda fit: fit.fits[0].B_crit,
        200.0,
        None,
        ("steps",),
        lambda _: 0.01,
    ),
    "own": Planted(
        own_losses,
        fit_data_law,
        lambda fit: fit.parameters["L_0"],
        1.7,
        ("g", lambda fit: fit.values["g"]),
        ("loss",),
        lambda _: 0.003,
    ),
}


@pytest.fixture(scope="module", params=[*LAWS])
def law(request):
    return LAWS[request.param]


@pytest.fixture(scope="module")
def fitted(law):
    return law.fit(law.table(0))


def ends(estimate):
    return pytest.approx((estimate.value, estimate.low, estimate.high), rel=1e-6)


def test_what_was_planted_is_found(law, fitted):
    one = law.estimate(fitted)
    assert one.low < one.value < one.high
    assert one.value == pytest.approx(law.truth, rel=0.2)


def test_the_order_of_rows_moves_no_value(law, fitted):
    one = law.estimate(law.fit(law.table(0)[::-1].reset_index(drop=True)))
    assert one.value == pytest.approx(law.estimate(fitted).value, rel=1e-4)


def test_copies_change_nothing_and_are_told(law, fitted):
    table = law.table(0)
    both = pd.concat([table, table.assign(run="copy-" + table["run"])], ignore_index=True)
    again = law.fit(both)
    one = law.estimate(again)
    assert (one.value, one.low, one.high) == ends(law.estimate(fitted))
    assert any("copies" in text for text in again.warnings)


def test_a_parameter_is_held_and_bounded(law, fitted):
    if law.fixed is None:
        pytest.skip("S = a + b/B has no parameter to fix")
    name, read = law.fixed
    near = 1.02 * read(fitted)
    assert read(law.fit(law.table(0), f"{name}={near!r}")) == pytest.approx(near, rel=1e-6)
    bounded = read(law.fit(law.table(0), f"{name}={near!r}:{1.2 * near!r}"))
    assert near * (1 - 1e-6) <= bounded <= 1.2 * near


def test_a_wrong_run_is_an_outlier_and_without_one_there_is_none(law, fitted):
    assert not fitted.outliers
    table = law.table(0)
    wrong = table["run"].iloc[len(table) // 2]
    rows = table["run"] == wrong
    for name in law.measured:
        table.loc[rows, name] *= 1.5
    first = law.fit(table).outliers[0]
    at = first.at.get("run") or f"b{first.at['batch']:g}"  # curves of steps are of means of runs
    assert at == wrong


def test_errors_at_what_is_left_out_are_those_of_the_noise(law, fitted):
    assert 0.3 < fitted.cv_error / law.noise(fitted) < 3


@pytest.mark.slow
def test_intervals_hold_what_was_planted(law):
    held = []
    for seed in range(40):
        one = law.estimate(law.fit(law.table(seed)))
        held.append((one.low or 0.0) <= law.truth <= (one.high or np.inf))
    assert np.mean(held) > 0.75  # 90%, less three standard deviations of 40 draws
