"""What two tests show: on equal contenders next to nothing, on planted effects nearly all."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bss.contests.contest import Contest
from bss.contests.contrasts import Effect, contrasts, holm, judge, over_seeds, scatters
from bss.contests.scatter import Scatter

RESULTS = Path(__file__).parents[2] / "results"


def shape_of_es_wsd():
    """Of the committed study: by ending who contends, who of them grows, and the pooled scatter."""
    table = pd.read_csv(RESULTS / "es_wsd" / "contenders.csv")
    shape = []
    for _, rows in table.groupby("ending", sort=False):
        losses = rows.pivot_table(index="name", columns="seed", values="test_loss", sort=False)
        roles = rows.groupby("name", sort=False)["role"].first()
        grows = roles.isin(["schedule", "late"]).to_numpy()
        pooled = max(scatters(losses).values(), key=lambda found: found.freedom)
        shape.append((list(losses.index), grows, np.sqrt(pooled.variance)))
    return shape


def study(draw, shape, seeds, effect=0.0):
    """One study: by ending the contrasts of what grows with the constant best on held-out loss."""
    found = []
    for names, grows, sd in shape:
        ends = draw.normal(0, 0.005, seeds) + sd * draw.normal(size=(len(names), seeds))
        ends[grows] -= effect
        table = {
            "name": np.repeat(names, seeds),
            "role": np.repeat(np.where(grows, "schedule", "constant"), seeds),
            "ending": "decay",
            "seed": np.tile(np.arange(seeds), len(names)),
            "test_loss": ends.ravel(),
            "eval_loss": (ends + 0.3 * sd * draw.normal(size=ends.shape)).ravel(),
        }
        found.append(Contest(pd.DataFrame(table)).against_best("decay")[1])
    return found


@pytest.mark.parametrize(
    ("seeds", "studies", "most"),
    [
        (3, 30, 0.09),
        pytest.param(3, 1000, 0.06, marks=pytest.mark.slow),
        pytest.param(8, 500, 0.09, marks=pytest.mark.slow),
    ],
)
def test_equal_contenders_are_told_apart_in_few_studies(seeds, studies, most):
    draw, shape = np.random.default_rng(0), shape_of_es_wsd()
    shown = [
        any(one.sign for ending in study(draw, shape, seeds) for one in ending.values())
        for _ in range(studies)
    ]
    assert np.mean(shown) <= most


def test_a_planted_effect_is_shown_with_eight_seeds():
    draw, shape = np.random.default_rng(1), shape_of_es_wsd()
    shown = [
        contrast.sign == -1
        for _ in range(20)
        for ending in study(draw, shape, seeds=8, effect=0.03)
        for contrast in ending.values()
    ]
    assert np.mean(shown) >= 0.8


def test_the_committed_runs_show_what_both_tests_show():
    table = pd.read_csv(RESULTS / "es_wsd" / "contenders.csv")
    found = {}
    for rate, rows in table.groupby("ending", sort=False):
        losses = rows.pivot_table(index="name", columns="seed", values="test_loss", sort=False)
        grown = set(rows["name"][rows["role"].isin(["schedule", "late"])])
        found[rate] = contrasts(losses, [(name, "constant 1") for name in grown])
    late = found["constant"]["late 1 → 8", "constant 1"]
    assert late.sign == -1
    along = found["constant"]["B_opt along the annealed loss", "constant 1"]
    own, pooled = along.p_adjusted, along.pooled_p_adjusted
    assert (
        own is not None and pooled is not None and own > 0.05 > pooled
    )  # by the pooled test alone
    averaged = found["averaged"]["late 1 → 8", "constant 1"]
    own, pooled = averaged.p_adjusted, averaged.pooled_p_adjusted
    assert own is not None and pooled is not None and own < 0.05 < pooled  # by its own alone
    assert along.sign == averaged.sign == 0


def test_own_test_is_the_paired_t():
    losses = pd.DataFrame([[1.0, 2.0, 3.5], [0.7, 2.1, 3.0]], index=["a", "b"])
    found = contrasts(losses, [("a", "b")])["a", "b"]
    assert found.p == pytest.approx(stats.ttest_rel(*losses.to_numpy()).pvalue)
    assert found.p_adjusted == found.p
    assert (found.low, found.high) == pytest.approx(
        tuple(stats.ttest_rel(*losses.to_numpy()).confidence_interval(0.95))
    )


def test_interval_excludes_zero_where_the_adjusted_p_is_small():
    draw = np.random.default_rng(2)
    for shift in np.linspace(0, 0.05, 30):
        found = over_seeds({i: draw.normal(shift, 0.01, 5) for i in range(4)})
        for contrast in found.values():
            assert contrast.low is not None and contrast.high is not None
            assert contrast.p_adjusted is not None
            assert (contrast.low > 0 or contrast.high < 0) == (contrast.p_adjusted < 0.05)


def test_a_scatter_unlike_the_others_is_not_pooled():
    draw = np.random.default_rng(3)
    rows = {f"c{i}": draw.normal(0, 0.01, 8) for i in range(6)} | {"wild": draw.normal(0, 1, 8)}
    found = scatters(pd.DataFrame(rows).T)
    assert found["wild"].freedom == 7
    assert found["c0"] == found["c5"]
    assert found["c0"].freedom == 5 * 7
    assert found["c0"].variance == pytest.approx(1e-4, rel=0.5)


def test_one_seed_tells_nothing():
    found = contrasts(pd.DataFrame([[1.0], [2.0]], index=["a", "b"]), [("a", "b")])["a", "b"]
    assert (found.estimate, found.n, found.p, found.low, found.sign) == (-1.0, 1, None, None, 0)


def test_equal_runs_differ_by_nothing():
    losses = pd.DataFrame([[1.0, 2.0, 3.0]] * 2 + [[1.1, 2.3, 2.9]], index=["a", "b", "c"])
    found = contrasts(losses, [("a", "b"), ("c", "b")])["a", "b"]
    assert (found.estimate, found.p, found.sign) == (0, 1, 0)


def test_a_seed_that_one_contender_lacks_is_left_out_of_its_pairs():
    losses = pd.DataFrame(
        [[1.0, 2.0, 3.5, 1.1], [0.7, 2.1, 3.0, np.nan], [0.9, 2.2, 3.3, 1.3]], index=list("abc")
    )
    found = contrasts(losses, [("a", "b"), ("a", "c")])
    assert {pair: one.n for pair, one in found.items()} == {("a", "b"): 3, ("a", "c"): 4}


def test_smallest_effect_is_seen_in_eighty_percent():
    draw = np.random.default_rng(4)
    ends = draw.normal(0, 0.01, 8)
    smallest, sd = over_seeds({0: ends})[0].smallest_effect, np.std(ends, ddof=1)
    assert smallest is not None
    seen = [over_seeds({0: draw.normal(smallest, sd, 8)})[0].sign == 1 for _ in range(500)]
    assert np.mean(seen) == pytest.approx(0.8, abs=0.06)


def test_holm_keeps_the_order_and_never_passes_one():
    assert holm([0.5, 0.9, 0.7]).tolist() == [1, 1, 1]
    assert holm([]).tolist() == []


def test_the_surest_of_several_counts_as_often():
    effect = Effect(0.03, 9, Scatter(0.01**2, 8), Scatter(0.01**2, 16))
    alone, chosen = (judge({"it": effect}, chosen_of=times)["it"] for times in ({}, {"it": 2}))
    assert alone.p and chosen.p == pytest.approx(2 * alone.p)
    assert alone.low and chosen.low and chosen.low < alone.low
    assert (chosen.sign, judge({"it": effect}, chosen_of={"it": 10})["it"].sign) == (1, 0)
