"""Standings at one ending: planted losses, by hand."""

import numpy as np
import pandas as pd
import pytest

from bss.contests.contest import Contest, Standing
from bss.contests.contrasts import Contrast
from bss.errors import InputError

NOISE = np.array([0.001, -0.001, 0.0, 0.0])


def contenders(rate="decay", **means):
    """Losses of four seeds about a mean and a level that every seed shares; roles by the name."""
    rows = []
    for i, (name, mean) in enumerate(means.items()):
        role = "constant" if name.startswith("c") else "schedule"
        for seed in range(4):
            loss = mean + 0.1 * seed + float(np.roll(NOISE, i)[seed])
            rows.append((name, name[1:], role, seed, loss, loss + 0.5))
    table = pd.DataFrame(rows, columns=["name", "batch", "role", "seed", "test_loss", "eval_loss"])
    return table.assign(ending=rate, tokens=1000, steps=10, peak_lr=1e-3)


def test_contenders_stand_by_their_loss_beside_the_best_constant():
    table = contenders(c8=3.0, c16=3.05, s1=2.9, s2=3.2)
    found = Contest(table).standings("decay")
    assert [one.name for one in found] == ["s1", "c8", "c16", "s2"]
    assert [one.verdict for one in found] == ["wins", "best constant", "loses", "loses"]
    assert [one.best for one in found] == [False, True, False, False]
    assert found[0].difference == pytest.approx(-0.1)
    assert found[0].loss == pytest.approx(2.9 + 0.15)
    assert found[0].eval_loss == pytest.approx(2.9 + 0.65)
    assert (found[0].tokens, found[0].steps, found[0].batch) == (1000, 10, "1")
    effect = found[0].effect
    assert effect and effect.high and found[0].error == pytest.approx(effect.high + 0.1)
    assert Contest(table).standings("cosine") == []
    assert [*Contest(pd.concat([table, table.assign(ending="constant")])).by_ending()] == [
        "constant",
        "decay",
    ]
    assert Contest(table).best_constant("decay") == "c8"


def test_one_seed_or_no_constant_leaves_it_undecided():
    grown = Contest(contenders(s1=2.9, s2=3.2)).standings("decay")
    assert [one.verdict for one in grown] == ["undecided"] * 2
    assert grown[0].error is None and np.isnan(grown[0].difference)
    alone = contenders(c8=3.0, s1=2.9).query("seed == 0")
    assert [one.verdict for one in Contest(alone).standings("decay")] == [
        "undecided",
        "best constant",
    ]


@pytest.mark.parametrize(
    ("estimate", "half", "p", "verdict"),
    [
        (-0.01, 0.005, 0.01, "wins"),
        (0.01, 0.005, 0.01, "loses"),
        (-0.002, 0.005, 0.5, "no worse"),
        (-0.002, 0.0051, 0.5, "undecided"),
    ],
)
def test_no_worse_ends_at_three_thousandths(estimate, half, p, verdict):
    effect = Contrast(estimate, estimate - half, estimate + half, 0.95, 4, p, p, p, p, 0.1)
    one = Standing("a", "8", "schedule", {0: 3.0}, 3.0, 1000, 10, False, effect)
    assert one.verdict == verdict
    assert one.error == pytest.approx(half)


def test_a_run_without_a_test_loss_has_all_compared_on_what_was_held_out():
    table = contenders(c8=3.0, s1=2.9)
    assert Contest(table).compared == "test_loss"
    table.loc[0, "test_loss"] = np.nan
    assert Contest(table).compared == "eval_loss"
    assert Contest(table).losses("decay").loc["c8", 1] == pytest.approx(3.599)


def test_each_contender_is_kept_at_its_best_rate():
    slow, fast = contenders(c8=3.0, s1=2.9), contenders(c8=2.9, s1=3.0).assign(peak_lr=4e-3)
    every = pd.concat([slow, fast, fast.query("name == 's1'").assign(peak_lr=8e-3)])
    found = Contest(every).tuned().table
    kept = found.groupby("name")[["peak_lr", "trials"]].agg(["min", "max"])
    assert kept.loc["c8"].tolist() == [4e-3, 4e-3, 2, 2]
    assert kept.loc["s1"].tolist() == [1e-3, 1e-3, 3, 3]


def test_names_are_compared_with_all_others_of_their_rate():
    table = pd.concat([contenders(c8=3.0, s1=2.9), contenders("constant", c8=3.0)])
    found = Contest(table).differences(["s1"])
    (row,) = found.to_dict("records")
    assert (row["ending"], row["name"], row["against"], row["verdict"]) == (
        *("decay", "s1", "c8"),
        "lower",
    )
    apart = -0.1 + np.roll(NOISE, 1) - NOISE
    assert row["difference"] == pytest.approx(-0.1)
    assert row["error"] == pytest.approx(2 * np.std(apart, ddof=1) / 2)
    assert row["seeds"] == 4


def test_a_best_constant_that_was_lucky_is_doubted():
    """Where other seeds would have chosen another constant, a loss has the larger p of both."""
    table = contenders(c8=3.0, c16=3.01, s1=3.02)
    held_out = {"c8": [2.9, 3.1, 3.0, 3.0], "c16": [3.1, 2.95, 2.97, 2.99]}
    for name, losses in held_out.items():
        table.loc[table["name"] == name, "eval_loss"] = losses
    best, lucky = Contest(table).against_best("decay")
    fair = table.copy()
    fair.loc[fair["name"] == "c16", "eval_loss"] = 9.0
    assert best == "c8"
    sure = Contest(fair).against_best("decay")[1]["s1"]
    assert lucky["s1"].estimate == pytest.approx(sure.estimate)
    assert lucky["s1"].p and sure.p and lucky["s1"].p > sure.p
    constants = Contest(table).against_best("decay", constants=True)[1]
    assert set(constants) == {"c8", "c16"}


def test_a_seed_that_stands_twice_is_refused():
    table = contenders(c8=3.0, s1=2.9)
    twice = pd.concat([table, table.iloc[[5]].assign(peak_lr=2e-3)])
    with pytest.raises(InputError, match="seed 1 of 's1', ending 'decay', stands twice; keep one"):
        Contest(twice).losses("decay")
    assert len(Contest(twice).at_rate(1e-3).losses("decay")) == 2


def test_pairs_are_of_the_seeds_that_both_have_also_across_endings():
    table = contenders(c8=3.0, s1=2.9)
    late = contenders("constant", s1=3.1).query("seed != 2")
    apart = Contest(pd.concat([table, late])).paired(("s1", "constant"), ("c8", "decay"))
    assert apart.index.tolist() == [0, 1, 3]
    assert apart.tolist() == pytest.approx([0.1 + NOISE[0] - NOISE[0], 0.1, 0.1 - NOISE[3]])


def test_runs_are_told_by_their_ids_and_ending():
    table = contenders(c8=3.0, s1=2.9)
    assert Contest(table).runs("s1", "decay") == ""
    named = table.assign(run=[f"r{i}" for i in range(8)])
    again = named.iloc[::-1].replace({"name": {"s1": "other"}})
    assert Contest(named).runs("s1", "decay") == Contest(again).runs("other", "decay") != ""
    assert Contest(named).runs("c8", "decay") != Contest(named).runs("s1", "decay")
