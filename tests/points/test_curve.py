import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import isotonic_regression

from bss.errors import InputError
from bss.points.curve import default_targets, evaluated, points, smooth_curve
from bss.tables import POINTS, check_runs


def power_law(tokens, batch):
    return 1.2 + 40 * tokens**-0.35 * batch**0.1 + 1 / batch


def run_table(batches=(4, 8, 16), *, last=2_000_000, every=25, noise=0.0, column="eval_loss"):
    """Curves of a known law, `every` evaluations per e-fold of tokens."""
    generator = np.random.default_rng(0)
    frames = []
    for batch in batches:
        step = np.unique(np.geomspace(20, last / batch / 128, every * 7).astype(int))
        tokens = step * batch * 128
        loss = power_law(tokens, batch) * (1 + noise * generator.standard_normal(len(step)))
        columns = {"run": f"b{batch}", "batch": batch, "seq_len": 128, "step": step}
        frames.append(pd.DataFrame(columns | {column: loss}))
    return check_runs(pd.concat(frames, ignore_index=True))


def crossing(batch, target):
    return ((target - 1.2 - 1 / batch) / (40 * batch**0.1)) ** (-1 / 0.35)


def test_crossings_of_a_smooth_curve_are_exact():
    table = points(run_table(), [2.2, 1.9])
    assert list(table.columns) == ["run", *POINTS]
    assert list(table["reached"]) == [True] * 6
    batch, target = (np.asarray(table[name], float) for name in ("batch", "target_loss"))
    tokens = np.asarray(table["tokens_to_target"])
    np.testing.assert_allclose(tokens, crossing(batch, target), rtol=2e-3)
    np.testing.assert_allclose(np.asarray(table["steps"]) * batch * 128, tokens, rtol=1e-9)


def test_resolution_is_the_spacing_of_evaluations_around_the_crossing():
    runs = run_table((8,))
    row = points(runs, [1.9]).iloc[0].to_dict()
    log_tokens = np.log(np.asarray(runs["tokens"], float))
    i = int(np.searchsorted(log_tokens, np.log(row["tokens_to_target"])))
    assert row["eval_spacing"] == pytest.approx(log_tokens[i] - log_tokens[i - 1])


@pytest.mark.parametrize("direction", [0, 1])
def test_window_lags_neither_way_under_noise(direction):
    tables = []
    for seed in range(20):
        runs = run_table((8,))
        noise = 1 + 0.003 * np.random.default_rng([seed, direction]).standard_normal(len(runs))
        tables.append(points(runs.assign(eval_loss=runs["eval_loss"] * noise), [1.9]))
    found = np.log([table["tokens_to_target"][0] for table in tables])
    assert found.mean() == pytest.approx(math.log(crossing(8, 1.9)), abs=4e-3)


def test_noisy_training_loss_takes_a_window_in_tokens():
    step = np.arange(1, 4001)
    noise = 0.05 * np.random.default_rng(0).standard_normal(len(step))
    loss = power_law(step * 8 * 128, 8) + noise
    runs = check_runs(
        pd.DataFrame({"run": "a", "batch": 8, "seq_len": 128, "step": step, "loss": loss})
    )
    found = points(runs, [1.9], smooth=300_000)["tokens_to_target"].to_numpy()
    assert found[0] == pytest.approx(crossing(8, 1.9), rel=0.05)


def test_unreached_targets_are_kept_with_what_the_run_consumed():
    runs = run_table()
    table = points(runs, [float(np.min(runs["eval_loss"])) + 1e-3])
    assert list(table["reached"]).count(True) == 1
    for row in table.to_dict("records"):
        if not row["reached"]:
            own = runs[runs["run"] == row["run"]]
            assert row["tokens_to_target"] == np.max(own["tokens"])
            assert row["steps"] == np.max(own["step"])
            assert math.isnan(row["eval_spacing"])


def test_batch_that_changes_inside_a_run_uses_the_runs_own_steps():
    batch = np.where(np.arange(400) < 200, 4, 16)
    tokens = np.cumsum(batch * 10 * 128)
    curve = {"run": "ramp", "seq_len": 128, "batch": batch, "step": 10 * np.arange(1, 401)}
    runs = check_runs(pd.DataFrame(curve | {"loss": power_law(tokens, 8)}))
    row = points(runs, [1.65]).iloc[0].to_dict()
    assert row["tokens_to_target"] == pytest.approx(crossing(8, 1.65), rel=5e-3)
    first = 200 * 10 * 4 * 128
    steps = 2000 + (row["tokens_to_target"] - first) / (16 * 128)
    assert row["steps"] == pytest.approx(steps, rel=1e-6)
    assert row["batch"] == pytest.approx(row["tokens_to_target"] / (row["steps"] * 128))


def test_divergence_after_the_crossing_does_not_move_it():
    runs = run_table((8,))
    diverged = runs.assign(eval_loss=np.where(runs.index > len(runs) - 20, 9.0, runs["eval_loss"]))
    whole, cut = (points(table, [2.0])["tokens_to_target"].to_list() for table in (runs, diverged))
    assert whole == pytest.approx(cut, rel=1e-9)


def test_monotone_curve_never_rises():
    curve = smooth_curve(run_table((8,), noise=0.02), "eval_loss")
    assert (np.diff(curve.loss) <= 0).all()


def test_default_targets_lie_between_warm_up_and_what_most_batches_reach():
    runs = run_table((2, 4, 8, 16, 32))
    targets = default_targets(runs, 4, warmup_tokens=50_000)
    at_twice = [power_law(100_000.0, batch) for batch in (2, 4, 8, 16, 32)]
    assert len(targets) == 4
    assert max(targets) < min(at_twice)
    assert np.ptp(np.diff(targets)) < 2e-3
    table = points(runs, targets)
    for target in targets:
        assert np.sum(table["reached"][table["target_loss"] == target]) >= 3


def test_sparse_evaluations_are_warned_of():
    with pytest.warns(UserWarning, match="fewer than 10 evaluations per e-fold"):
        points(run_table(every=6), [2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        points(run_table(every=25), [2.0])


BAD = {
    "no run reaches 0.5; the lowest loss reached is 1.": lambda runs: points(runs, [2.0, 0.5]),
    "must be positive losses": lambda runs: points(runs, [2.0, float("nan")]),
    "at least one": lambda runs: points(runs, []),
    "has 2 values of eval_loss; it needs 3": lambda runs: points(runs.iloc[:2], [2.0]),
    "train longer or warm up less": lambda runs: default_targets(runs, warmup_tokens=10**6),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused_in_one_line(message):
    with pytest.raises(InputError, match=message) as refusal:
        BAD[message](run_table())
    assert "\n" not in str(refusal.value)


def test_runs_with_too_few_losses_are_told_and_left_out():
    runs = pd.DataFrame(
        {
            "run": ["a"] * 4 + ["b"] * 4,
            "eval_loss": [3.0, 2.5, 2.2, 2.0, 3.0, 2.5, np.nan, np.nan],
        }
    )
    kept, told = evaluated(runs)
    assert set(kept["run"]) == {"a"}
    (line,) = told
    assert line.startswith("1 of 2 runs are left out, with fewer than 3 values of eval_loss")
    assert evaluated(kept)[1] == []
    with pytest.raises(InputError, match="run b has 2 values of eval_loss; it needs 3"):
        evaluated(runs.loc[runs["run"] == "b"])


def lines_by_hand(x, y, low, high):
    """At each place the line through all points of its window, one by one."""
    fitted = []
    for at, first, last in zip(x, low, high, strict=True):
        near = (x >= first - 1e-9) & (x <= last + 1e-9)
        many = near.sum() > 1
        fitted.append(np.polyval(np.polyfit(x[near] - at, y[near], 1), 0) if many else y[near][0])
    return np.array(fitted)


@pytest.mark.parametrize("smooth", [None, 300_000])
def test_a_smooth_curve_is_a_line_fitted_in_every_window(smooth):
    run = run_table((8,), last=1_000_000, every=15, noise=0.03)
    tokens, loss = run["tokens"].to_numpy(float), run["eval_loss"].to_numpy(float)
    x = np.log(tokens)
    low, high = x - 0.125, x + 0.125
    if smooth:
        half = np.minimum(150_000, tokens - tokens[0])
        low, high = np.log(tokens - half), np.log(tokens + half)
    fitted = lines_by_hand(x, loss, low, high)
    last = int(np.argmin(fitted)) + 1
    found = smooth_curve(run, "eval_loss", smooth)
    np.testing.assert_allclose(found.log_tokens, x[:last])
    falling = isotonic_regression(fitted[:last], increasing=False).x
    np.testing.assert_allclose(found.loss, falling, rtol=1e-9)
    np.testing.assert_array_equal(found.steps, run["step"])


def test_targets_are_chosen_at_even_distances_from_where_the_warm_up_is_behind():
    runs = run_table((4, 8, 16), every=40)
    ends = sorted(some["eval_loss"].to_numpy(float).min() for _, some in runs.groupby("run"))
    highest = min(power_law(200_000.0, batch) for batch in (4, 8, 16))
    lowest = ends[1]  # two of three are 60% or more
    found = default_targets(runs, 4, warmup_tokens=100_000)
    spaced = highest + (lowest - highest) * np.arange(1, 5) / 4
    np.testing.assert_allclose(found, spaced, atol=2e-3)
    assert [round(target, 3) for target in found] == [*found]
    assert default_targets(runs, 4, warmup_tokens=100_000, share=1.0)[-1] == pytest.approx(
        ends[2], abs=1.1e-3
    )
    near = default_targets(runs, 2, warmup_tokens=980_000, share=0.3)
    assert len({round(target, 3) for target in near}) == 2
    assert default_targets(runs, 1)[0] == pytest.approx(lowest, abs=1e-3)
    with pytest.raises(InputError, match="targets: 0 given"):
        default_targets(runs, 0)


def test_a_target_met_at_the_first_loss_has_its_tokens():
    step = np.arange(1, 9) * 10
    run = pd.DataFrame({"run": "a", "batch": 2, "seq_len": 16, "step": step, "tokens": 32 * step})
    run = run.assign(eval_loss=3.0 - 0.1 * np.arange(8))
    row = points(run, [3.5], lr_phase="decayed").iloc[0]
    assert (row["tokens_to_target"], row["steps"]) == (pytest.approx(320), pytest.approx(10))
    assert row["eval_spacing"] == pytest.approx(math.log(2))
    assert (row["budget_tokens"], row["lr_phase"]) == (2560, "decayed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        last = points(run, [2.3], lr_phase="decayed").iloc[0]
    assert last["reached"] and last["tokens_to_target"] == pytest.approx(2560)
    assert last["eval_spacing"] == pytest.approx(math.log(8 / 7))
