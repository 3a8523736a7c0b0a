"""Odd tables end in a result or in one line: runs that rise, spike, stop early or lack losses."""

import warnings

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.points.batches import alike, batch_curves, excess, varied
from bss.points.conditions import by_condition
from bss.points.curve import default_targets, loss_column, points, smooth_curve
from bss.points.measuring import measure_points
from bss.report.measured import measured_results
from bss.tables import check_runs

FAST, SLOW = 40, 150


def sweep(batches=(4, 8, 16, 32)):
    """Runs of a known law, whose best batch size is 11 at loss 2.3."""
    step = np.unique(np.geomspace(20, 1000, 30).astype(int))
    frames = []
    for batch in batches:
        steps = np.maximum(step * 8 // batch, 1)
        loss = 1.2 + 40 * (steps * batch * 64.0) ** -0.35 * (1 + 8 / batch + batch / 60)
        columns = {"run": f"b{batch}", "batch": batch, "seq_len": 64, "step": steps}
        frames.append(pd.DataFrame(columns | {"loss": loss}))
    return pd.concat(frames, ignore_index=True).drop_duplicates(["run", "step"])


def rising(loss=2.0, batch=8):
    """A run whose lowest loss is its first."""
    step = np.arange(400, 2001, 400)
    columns = {"run": "rise", "batch": batch, "seq_len": 64, "step": step}
    return pd.DataFrame(columns | {"loss": np.linspace(loss, loss + 0.4, len(step))})


def odd_table(seed):
    """Some runs of a table: falling, rising, spiking, constant, missing losses or very short."""
    draw = np.random.default_rng([seed, 8])
    frames = []
    for i in range(int(draw.integers(2, 9))):
        count = int(draw.integers(1, 30))
        step = np.cumsum(draw.integers(1, 60, count))
        shape = draw.choice(["falls", "rises", "spikes", "constant", "noise"])
        loss = {
            "falls": 1.5 + 4 * step**-0.3,
            "rises": 2 + 0.01 * np.arange(count),
            "spikes": 1.5 + 4 * step**-0.3 + 3 * (draw.random(count) > 0.8),
            "constant": np.full(count, 2.5),
            "noise": draw.uniform(1, 5, count),
        }[shape]
        loss = np.where(draw.random(count) < 0.2 * draw.integers(0, 2), np.nan, loss)
        columns = {"run": f"r{i}", "batch": int(draw.choice([1, 2, 4, 8, 16])), "seq_len": 64}
        frames.append(pd.DataFrame(columns | {"step": step, "loss": loss}))
    if draw.random() < 0.6:
        frames.append(sweep())
    table = pd.concat(frames, ignore_index=True)
    if draw.random() < 0.3:
        table["peak_lr"] = draw.choice([1e-3, 2e-3])
    if draw.random() < 0.2:
        table["model"] = np.where(table["run"].isin(["r0", "b4"]), "a", "b")
    return table


def odd_targets(seed, runs):
    """Targets of an odd table; none in a third of them."""
    draw = np.random.default_rng([seed, 9])
    losses = runs[loss_column(runs)].dropna()
    if draw.random() < 0.3 or losses.empty:
        return None
    return [float(np.quantile(losses, draw.uniform(0.1, 0.9))) for _ in range(draw.integers(1, 4))]


def attempt(make, *arguments, **how):
    """The result, or None after a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return make(*arguments, **how)
        except InputError as error:
            lines = str(error).splitlines()
    assert len(lines) == 1
    return None


def checked(seed):
    """An odd table that the reader takes, and its targets."""
    runs = attempt(check_runs, odd_table(seed))
    return None if runs is None else (runs, odd_targets(seed, runs))


def measure(seed):
    """Points of an odd table by every function of points."""
    case = checked(seed)
    if case is None:
        return None
    runs, targets = case
    by_condition(runs), varied(runs)
    one = alike(runs)
    if len(one):
        curves = attempt(batch_curves, one, loss_column(one))
        if curves:
            excess(curves)
    measured = attempt(measure_points, runs, targets)
    if measured is None:
        return None
    table, _ = measured
    reached = table["reached"].to_numpy(bool)
    spacing = table["eval_spacing"].to_numpy(float)
    assert np.isfinite(spacing[reached]).all()
    assert np.isfinite(table["tokens_to_target"].to_numpy(float)).all()
    return table


def test_odd_tables_are_measured_or_refused_in_one_line():
    measured = [measure(seed) for seed in range(FAST)]
    assert sum(one is not None for one in measured) >= 3


@pytest.mark.slow
def test_odd_tables_are_fitted_and_reported_or_refused_in_one_line():
    fitted = 0
    for seed in range(SLOW):
        case = checked(seed)
        table = measure(seed)
        if table is not None:
            fitted += attempt(fit_es, table, options=Options(10)) is not None
        if case is not None:
            runs, targets = case
            attempt(measured_results, runs, {}, measuring={"targets": targets}, resamples=10)
    assert fitted >= 5


@pytest.mark.parametrize("targets", [[2.3], None])
def test_a_run_that_only_rises_is_named_and_moves_nothing(targets):
    runs, odd = (check_runs(pd.concat(some)) for some in ([sweep()], [sweep(), rising()]))
    alone, _ = measure_points(runs, targets)
    beside, told = measure_points(odd, targets)
    pd.testing.assert_frame_equal(beside.loc[beside["run"] != "rise"].reset_index(drop=True), alone)
    assert sum("rise" in text for text in told) == 1


def test_a_curve_of_one_loss_has_no_spacing():
    runs = check_runs(rising())
    assert len(smooth_curve(runs, "loss").loss) == 1
    (row,) = points(runs, [2.3]).to_dict("records")
    assert row["reached"]
    assert np.isnan(row["eval_spacing"])
    with pytest.raises(InputError, match=r"lowest loss first \(e.g. rise\)"):
        default_targets(runs)


def test_runs_that_all_rise_are_refused_in_one_line():
    runs = check_runs(pd.concat([rising(batch=b).assign(run=f"b{b}") for b in (4, 8, 16)]))
    for targets in (None, [2.3]):
        with pytest.raises(InputError):
            measure_points(runs, targets)
