"""Tables of final losses: what is refused, and what they are as design points."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.final_loss.table import check_losses, final_losses, loss_points
from bss.tables import check_runs
from bss.tables.columns import Origin


def frame(**change):
    """Two models, two budgets, two batches, at two or three rates, some twice."""
    rows = []
    for params in (1e8, 2e8):
        for tokens in (2e9, 4e9):
            for batch in (64, 128):
                for k in range(3 if batch == 64 else 2):
                    loss = 3 + 1e8 / params + 1e9 / tokens + 0.01 * (k - 1.2) ** 2 + batch / 1e5
                    rows.append((params, tokens, batch, 256, 1e-3 * 2**k, loss))
    table = pd.DataFrame(rows, columns=["params", "tokens", "batch", "seq_len", "lr", "loss"])
    twice = table.iloc[[0, 1, 1]].assign(
        lr=lambda t: t["lr"] * 1.009, loss=lambda t: t["loss"] + 0.02
    )
    return pd.concat([table, twice], ignore_index=True).assign(**change)


def diverged(table, *rows):
    marks = np.zeros(len(table), object)
    marks[list(rows)] = ["1", "True", "yes", 1.0][: len(rows)]
    return table.assign(diverged=marks)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loss": [3.0, 0.0, -1.0] + [3.0] * 20}, "ours 2: loss is 0; write a positive number"),
        ({"params": [1e8] * 3 + [-1.0] * 20}, "ours 4: params is -1"),
        (
            {"batch_tokens": [64.0 * 256] * 3 + [7.0] * 20},
            "ours 4: batch_tokens is not batch times",
        ),
        ({"lr": 0.0}, "ours 1: lr is 0"),
        ({"loss_se": -1.0}, "ours 1: loss_se is -1"),
        ({"rates_tried": 0}, "ours 1: rates_tried is 0"),
        ({"arch": ["a", "b"] * 11 + ["c"]}, "ours: arch is a, b, c at params 1e+08; the law is of"),
    ],
)
def test_rows_that_contradict_are_refused(change, says):
    with pytest.raises(InputError) as error:
        check_losses(frame(**change), Origin("ours"))
    assert says.replace("ours", "").strip(": ") in str(error.value)


def test_steps_that_contradict_tokens_are_refused():
    table = frame()
    steps = table["tokens"] / table["batch"] / table["seq_len"]
    assert len(check_losses(table.assign(steps=steps.round())))
    with pytest.raises(InputError, match=r"row 1: steps times the batch is 1.*tokens 2B"):
        check_losses(table.assign(steps=1000))


def test_loss_curves_are_refused_with_the_command_that_fits_them():
    curves = pd.DataFrame({"run": np.repeat(["a", "b"], 6), "tokens": np.tile(range(1, 7), 2)})
    curves = curves.assign(params=1e6, batch_tokens=64.0, loss=3.0)
    with pytest.raises(InputError, match="loss curves, which `bss fit es`"):
        check_losses(curves)


def test_nothing_finite_is_refused():
    with pytest.raises(InputError, match="loss: no row has a finite one; give final losses"):
        loss_points(check_losses(frame(loss=np.nan)))
    every = frame().assign(diverged=1)
    with pytest.raises(InputError, match="loss: no row has a finite one"):
        loss_points(check_losses(every))


def test_the_ends_of_runs_of_one_batch_are_final_losses():
    rows = pd.DataFrame(
        {
            "run": ["a", "a", "b", "b", "c", "c"], "step": [1, 2] * 3, "params": 1e6,
            "tokens": [64, 128, 128, 256, 64, 192], "batch": [2, 2, 4, 4, 2, 4], "seq_len": 32,
            "loss": [3.0, 2.9, 3.1, 2.8, 3.0, 2.0], "eval_loss": [3.5, np.nan, 3.6, 3.2, 3, 1],
            "peak_lr": [1e-3] * 6,
        }
    )  # fmt: skip
    losses = final_losses(check_runs(rows))
    assert losses[["tokens", "batch_tokens", "loss", "lr"]].to_numpy().tolist() == [
        [64, 64, 3.5, 1e-3], [256, 128, 3.2, 1e-3]
    ]  # fmt: skip
    assert losses["run"].tolist() == ["a", "b"]
    untold = rows.assign(peak_lr=[1e-3] * 3 + [np.nan] * 3)
    assert "lr" not in final_losses(check_runs(untold))
    with pytest.raises(InputError, match="the runs have no params"):
        final_losses(check_runs(rows.drop(columns="params")))


def test_rows_of_one_batch_that_seeds_do_not_explain_are_of_settings_that_are_not_told():
    row = {"params": 1e8, "tokens": 2e9, "seq_len": 64}
    losses = {16: (3.0, 3.1, 3.3), 32: (2.9, 3.0, 3.2)}
    rows = [row | {"batch": b, "loss": x} for b, each in losses.items() for x in each]
    table = check_losses(pd.DataFrame(rows))
    points, warnings = loss_points(table)
    assert points.loss.tolist() == [3.0, 2.9]
    assert "differ by 0.15 nats (SD), which seeds do not" in warnings[0]
    for repeated in (table.assign(seed=[1, 2, 3] * 2), table.assign(loss=3 + 1e-2 * table["loss"])):
        points, warnings = loss_points(repeated)
        np.testing.assert_allclose(points.count, 3)
        assert not any("differ by" in text for text in warnings)


def test_batch_sizes_that_move_with_the_budget_are_told():
    table = check_losses(frame().query("lr == 0.001").assign(lr=1e-3))
    moved = (table["batch"] == 64) == (table["tokens"] == 2e9)
    told = "no (params, tokens) has two batch sizes"
    assert any(text.startswith(told) for text in loss_points(table.loc[moved])[1])
    assert not any(text.startswith(told) for text in loss_points(table)[1])
