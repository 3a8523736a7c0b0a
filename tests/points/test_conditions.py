"""Which runs count as repetitions: no copies, forks, ramps, or runs under other conditions."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.conditions import by_condition, conditions, independent_runs
from bss.points.measuring import measure_points
from bss.tables import check_runs


def curve(run, batch, seed=0, tokens=200_000, **columns) -> pd.DataFrame:
    """A run whose loss falls with its steps; the seed adds a little noise."""
    step = np.arange(1, tokens // (batch * 16) + 1, max(tokens // (batch * 16 * 80), 1))
    noise = np.random.default_rng(seed).normal(0, 1e-3, len(step))
    loss = 1 + 8 * (step + 5 * batch) ** -0.5 + noise
    table = pd.DataFrame({"run": run, "step": step, "batch": batch, "seq_len": 16, "loss": loss})
    return table.assign(seed=seed, data_seed=seed, **columns)


def table(*curves):
    return check_runs(pd.concat(curves, ignore_index=True))


def test_copies_are_no_repetitions():
    runs = [curve(f"b{batch}", batch, seed=batch) for batch in (2, 4, 8)]
    copies = [run.assign(run=run["run"] + " copy", seed=9) for run in runs]
    kept, messages = independent_runs(table(*runs, *copies))
    assert sorted({*kept["run"]}) == ["b2", "b4", "b8"]
    assert "3 runs" in messages[0]
    other = [curve(f"b{batch} again", batch, seed=50 + batch) for batch in (2, 4, 8)]
    kept, messages = independent_runs(table(*runs, *other))
    assert (len({*kept["run"].tolist()}), messages) == (6, [])


def test_equal_losses_at_another_lr_are_no_copies():
    runs = [curve(f"lr{lr}", 4, 0, lr=lr) for lr in (1e-3, 2e-3)]
    assert len({*independent_runs(table(*runs))[0]["run"].tolist()}) == 2


@pytest.mark.parametrize("with_parent", [True, False])
def test_a_decayed_fork_repeats_its_base_run(with_parent):
    base = curve("z base", 4)
    fork = base.assign(run="a fork", loss=base["loss"] - 0.05 * (base["step"] > 1000))
    if with_parent:
        base, fork = base.assign(parent=None), fork.assign(parent="z base")
    kept, messages = independent_runs(table(fork, base) if with_parent else table(base, fork))
    assert sorted({*kept["run"]}) == ["z base"]
    assert "1 runs" in messages[0]


def test_a_ramp_has_no_point_of_one_batch():
    ramp = pd.concat([curve("ramp", 2, seed=7).iloc[:20], curve("ramp", 8, seed=7).iloc[20:]])
    ramp = ramp.assign(step=np.arange(1, len(ramp) + 1))
    runs = table(curve("b2", 2), curve("b4", 4, seed=1), ramp)
    points, messages = measure_points(runs, [1.4])
    assert {*points["run"]} == {"b2", "b4"} and messages[0].startswith("1 of 3 runs")
    alone, messages = measure_points(table(ramp), [ramp["loss"].to_numpy(float).min() + 0.01])
    assert 2 < alone["batch"].iloc[0] < 8 and messages == []


def test_a_target_above_the_first_loss_is_no_point():
    late = curve("b4", 4)
    late = late.loc[late["step"] > 1000]
    runs = table(curve("b2", 2, seed=1), late, curve("b8", 8, seed=2))
    target = late["loss"].to_numpy(float)[0] + 0.1
    points, messages = measure_points(runs, [target])
    assert {*points["run"]} == {"b2", "b8"} and "b4" in messages[-1]
    with pytest.raises(InputError, match="targets"):
        measure_points(table(late), [target])


def test_runs_of_several_conditions_are_refused():
    runs = [
        curve(f"{batch} {decay}", batch, batch).assign(**{"optimizer.weight_decay": decay})
        for batch in (2, 4, 8)
        for decay in (0.0, 0.1)
    ]
    runs = [run.assign(loss=run["loss"] + 0.01 * (i % 2)) for i, run in enumerate(runs)]
    assert conditions(table(*runs)) == ["optimizer.weight_decay"]
    with pytest.raises(InputError, match=r"optimizer\.weight_decay: 0\.0, 0\.1"):
        measure_points(table(*runs), [1.4])
    assert len(measure_points(table(*runs[::2]), [1.4])[0]) == 3


def test_models_and_sequence_lengths_are_measured_apart():
    runs = table(curve("b2", 2, seed=1), curve("b4", 4, seed=2))
    assert [*by_condition(runs)] == [""]
    large = runs.assign(run="large " + runs["run"], params=4e6, loss=runs["loss"] - 0.1)
    both = by_condition(pd.concat([runs.assign(params=1e6), large]))
    assert [*both] == ["params 1,000,000", "params 4,000,000"]
    assert {*both["params 4,000,000"]["run"]} == {"large b2", "large b4"}
    named = pd.concat([runs.assign(params=1e6, model="s"), large.assign(model="l")])
    assert [*by_condition(named)] == ["model l", "model s"]
    assert [*by_condition(pd.concat([runs, large.assign(seq_len=7)]).drop(columns="params"))] == [
        "seq_len 7",
        f"seq_len {runs['seq_len'].iloc[0]}",
    ]


def test_what_goes_with_the_batch_is_no_condition():
    runs = [
        curve(f"b{batch}", batch, batch).assign(**{"optimizer.beta2": 1 - batch / 100})
        for batch in (2, 4, 8)
    ]
    assert conditions(table(*runs)) == []


def test_horizons_are_a_condition_where_the_lr_decays():
    runs = [
        curve(f"{batch} {tokens}", batch, tokens, tokens, lr=1e-3, **{"schedule.tokens": tokens})
        for batch in (2, 4)
        for tokens in (100_000, 200_000)
    ]
    assert conditions(table(*runs)) == []
    decayed = [run.assign(lr=np.linspace(1e-3, 0, len(run))) for run in runs]
    assert conditions(table(*decayed)) == ["schedule.tokens"]
