"""A claim's verdict is its contrast's."""

import numpy as np
import pytest

from bss.points.claims import Claim, claim, estimate, markdown, untestable
from bss.points.contrasts import judge
from bss.values import from_dict, to_dict

ABOUT = {"unit": "nats", "table": "es_wsd/contenders.csv"}


def found(mean, seeds=6, sd=0.01):
    """A contrast of seeds that scatter alike about a mean."""
    spread = np.linspace(-1, 1, seeds)
    return judge({"it": mean + sd * spread / np.std(spread, ddof=1)})["it"]


@pytest.mark.parametrize(
    ("mean", "sign", "matters", "verdict"),
    [
        (0.05, 1, 0, "shown"),
        (0.05, -1, 0, "opposite shown"),
        (0.001, 1, 0, "undecided"),
        (0.001, 1, 0.02, "not shown"),
        (0.001, 1, 0.01, "undecided"),
    ],
)
def test_verdicts(mean, sign, matters, verdict):
    made = claim("It grows", "paper", "here", found(mean), sign=sign, matters=matters, **ABOUT)
    assert made.verdict == verdict


def test_one_seed_is_not_testable():
    contrast = judge({"it": [0.1]})["it"]
    made = claim("It grows", "paper", "here", contrast, sign=1, **ABOUT)
    assert (made.verdict, made.n) == ("not testable here", 1)


def test_reads_back():
    made = claim("It grows", "secondary", "here", found(0.05), sign=1, note="so", **ABOUT)
    assert from_dict(Claim, to_dict(made)) == made
    nothing = untestable("It ends", "paper", "here", note="no runs", **ABOUT)
    assert from_dict(Claim, to_dict(nothing)) == nothing


def test_table_has_a_row_a_claim():
    made = claim("It grows", "paper", "at constant rate", found(0.05), sign=1, **ABOUT)
    rows = markdown([made, untestable("It ends", "paper", "here", note="no runs", **ABOUT)])
    header, _, first, second = rows.splitlines()
    assert header.count("|") == first.count("|") == second.count("|")
    assert estimate(made) in first
    assert "+0.0500 (+0.0395 to +0.0605) nats" in first
    assert second.endswith("| not testable here |")
