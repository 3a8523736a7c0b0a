"""Runs whose values all equal those of another run are copies, unless chance explains them."""

import numpy as np
import pandas as pd
import pytest

from bss.points.copies import copied_rows
from bss.points.measuring import independent_points


def losses(decimals: int, seeds: int = 6) -> pd.DataFrame:
    """Final losses of seeds at ten batch sizes."""
    draw = np.random.default_rng(0)
    batch = np.repeat(2 ** np.arange(10), seeds)
    loss = 3 + 0.01 * np.log(batch) ** 2 + 0.004 * draw.standard_normal(len(batch))
    names = [f"r{i}" for i in range(len(batch))]
    return pd.DataFrame({"run": names, "batch": batch, "loss": loss.round(decimals)})


def copied(table: pd.DataFrame) -> np.ndarray:
    return copied_rows(table, ["batch"], "loss", 0.004 / table["loss"].to_numpy(float))[0]


@pytest.mark.parametrize("decimals", [2, 3, 4, 12])
def test_seeds_with_equal_losses_by_chance_are_kept(decimals):
    table = losses(decimals)
    pairs = table.duplicated(["batch", "loss"]).sum()
    assert pairs > 0 or decimals > 3
    assert not copied(table).any()


@pytest.mark.parametrize("decimals", [3, 4, 12])
def test_copies_of_a_table_are_found_under_other_names_and_without_names(decimals):
    table = losses(decimals, seeds=1)
    both = pd.concat([table, table.assign(run="copy " + table["run"])])
    assert copied(both).tolist() == [False] * 10 + [True] * 10
    assert copied(both.drop(columns="run")).tolist() == [False] * 10 + [True] * 10
    assert copied(pd.concat([table, table])).tolist() == [False] * 10 + [True] * 10


def test_a_part_of_a_run_is_a_copy_of_it_and_a_fork_is_none():
    run = pd.DataFrame({"run": "whole", "batch": range(6), "loss": np.linspace(3, 2, 6) ** 1.1})
    part = run.head(4).assign(run="part")
    fork = run.assign(run="fork", loss=run["loss"] - 0.01 * (run["batch"] > 3))
    both = pd.concat([part, run, fork])
    assert {*both.loc[copied(both), "run"]} == {"part"}


@pytest.mark.parametrize("decimals", [0, 2, 10, None])
def test_seeds_that_reach_a_target_at_equal_evaluations_are_kept(decimals):
    """Runs are evaluated after every 5.6M samples, which is no whole number of steps."""
    draw = np.random.default_rng(0)
    batch = np.repeat([4096, 16384, 65536, 262144], 20)
    samples = 5_600_000 * np.rint(batch**0.2 * np.exp(1 + 0.06 * draw.standard_normal(80)))
    steps = samples / batch
    table = pd.DataFrame({"batch": batch, "seed": range(80), "target_loss": 0.7, "model": "m"})
    table = table.assign(steps=steps if decimals is None else steps.round(decimals), reached=True)
    table["peak_lr"] = 1e-3
    assert table.duplicated(["batch", "steps"]).sum() > 40
    kept, told = independent_points(table)
    assert len(kept) == 80 and not told
    lists = pd.concat([table, table.assign(seed=table["seed"] + 80)]).iloc[::20]
    lists = lists.assign(steps=lists["steps"] * (1 + 0.01 * (np.arange(8) % 4)))
    assert len(independent_points(lists)[0]) == 4
