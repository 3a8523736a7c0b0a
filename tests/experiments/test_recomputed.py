"""Ten numbers of results/claims.json once more, from the tables with numpy alone."""

import csv
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[2] / "results"
CLAIMS = {
    (one["statement"], one["condition"]): one
    for one in json.loads((RESULTS / "claims.json").read_text())["claims"]
}
RULE = "beta2 .95 per step"
GROWS = "A batch that grows ends lower than the best constant batch"
LOSES = "Batch 1 is worse beside batch 2 at constant rate than at another ending"
MOVES = "beta2 per step in place of a half-life makes the smallest batch worse beside a larger one"
ENDINGS = {"constant rate": "constant", "averaged weights": "averaged", "decayed": "decay"}


def finals(table, ending, loss="test_loss", **equal):
    """Losses of an ending by contender, rate and seed."""
    found = defaultdict(dict)
    with open(RESULTS / table / "contenders.csv") as file:
        for row in csv.DictReader(file):
            if row["ending"] == ending and all(row[k] == v for k, v in equal.items()):
                found[row["name"], float(row["peak_lr"])][int(row["seed"])] = float(row[loss])
    return found


def paired(losses, a, b):
    """Differences by shared seed of two contenders, each of one rate."""
    (one,), (other,) = ([v for k, v in losses.items() if k[0] == name] for name in (a, b))
    return np.array([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])


def two_sided(apart):
    """Student's p, by the trapezoidal rule on the density."""
    n = len(apart)
    t, freedom = apart.mean() / (apart.std(ddof=1) / math.sqrt(n)), n - 1
    x = np.linspace(0, abs(t), 200_001)
    peak = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    density = peak * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    return 1 - 2 * float(np.trapezoid(density, x))


@pytest.mark.parametrize(("ending", "best"), [(0, "4"), (1, "2"), (2, "2")])
def test_a_switch_at_seventy_percent_beside_the_best_constant(ending, best):
    words = [*ENDINGS][ending]
    held_out = finals("second_moment/switch", ENDINGS[words], "eval_loss", role="constant")
    means = {name: np.mean([*some.values()]) for (name, _), some in held_out.items()}
    assert min(means, key=lambda name: means[name]) == f"0.95 per step · {best}"
    losses = finals("second_moment/switch", ENDINGS[words])
    apart = paired(losses, "0.95 per step · 0:2 70%:8", f"0.95 per step · {best}")
    one = CLAIMS[GROWS, f"0:2 70%:8, {RULE}, {words}"]
    assert one["estimate"] == pytest.approx(apart.mean(), rel=1e-6)
    if apart.mean() < 0:  # a loss takes the larger p of two best constants
        assert one["p"] == pytest.approx(two_sided(apart), rel=1e-3)


@pytest.mark.parametrize(
    ("table", "ending", "a", "b", "statement", "condition"),
    [
        (
            *("second_moment/large", "decay", "0.95 per step · 0:1 25%:8", "0.95 per step · 8"),
            "A batch that grows ends lower than each of its two batches throughout",
            f"0:1 25%:8 less batch 8, {RULE}, 4M tokens, decayed",
        ),
        (
            *("es_wsd", "decay", "late 4 → 32", "constant 1"),
            "A late switch ends lower than the best constant batch",
            "late 4 → 32, decayed",
        ),
        (
            *("es_wsd", "constant", "late 4 → 32", "late 4 → 32, LR × sqrt"),
            "Where the batch changes, keeping the rate ends lower than × sqrt",
            "late 4 → 32, constant rate",
        ),
        (
            *("late_switch", "constant", "law", "constant 1"),
            "The functional law's schedule ends lower than the best constant batch",
            "asked for constant rate, constant rate",
        ),
    ],
)
def test_differences_over_paired_seeds(table, ending, a, b, statement, condition):
    apart, one = paired(finals(table, ending), a, b), CLAIMS[statement, condition]
    assert one["estimate"] == pytest.approx(apart.mean(), rel=1e-6)
    assert one["n"] == len(apart)


def judged_at_its_own_rate(rule, batch, ending):
    """Test losses by judged seed, at the rate of the lowest held-out loss on seeds 0 and 1."""
    name = f"{rule} · {batch}"
    held_out = finals("second_moment/rules_h100", ending, "eval_loss", name=name)
    chosen = min(
        (key for key, some in held_out.items() if {0, 1} <= some.keys()),
        key=lambda key: held_out[key][0] + held_out[key][1],
    )
    losses = finals("second_moment/rules_h100", ending, name=name)[chosen]
    return np.array([losses[seed] for seed in range(2, 22)])


def test_differences_of_differences():
    def apart(rule, ending):
        return judged_at_its_own_rate(rule, 1, ending) - judged_at_its_own_rate(rule, 2, ending)

    step, tokens = "0.95 per step", "half-life 7K"
    moved = (apart(step, "decay") - apart(tokens, "decay")).mean()
    assert CLAIMS[MOVES, "batch 1 less 2, decayed"]["estimate"] == pytest.approx(moved, rel=1e-6)
    late = apart(step, "constant") - apart(step, "decay")
    one = CLAIMS[LOSES, f"{step}, less decayed"]
    assert one["estimate"] == pytest.approx(late.mean(), rel=1e-6)
    assert one["p"] == pytest.approx(two_sided(late), rel=1e-3)


def test_a_growing_batch_beside_the_constants_at_its_own_steps():
    steps = {1: 15625, 2: 7812, 4: 3906, 8: 1953}  # of 1M tokens
    losses = finals("second_moment/switch", "decay")
    by_seed = {name.split(" · ")[1]: some for (name, _), some in losses.items()}
    grown = by_seed["0:4 50.4%:8"]
    at = math.log(2937)
    x = np.array([math.log(steps[batch]) - at for batch in (2, 4, 8)])
    left = []
    for seed, loss in grown.items():
        y = np.array([by_seed[str(batch)][seed] for batch in (2, 4, 8)])
        left.append(loss - np.linalg.solve(np.vander(x, 3), y)[-1])
    one = CLAIMS[
        "A growing batch ends lower than the constants do at its own number of steps",
        f"0:4 50.4%:8, {RULE}, decayed",
    ]
    assert one["estimate"] == pytest.approx(np.mean(left), rel=1e-5)
    assert one["p"] == pytest.approx(two_sided(np.array(left)), rel=1e-2)
