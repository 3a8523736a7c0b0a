"""What is claimed of a law's L_0: planted estimates, and the committed ones."""

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.irreducible_loss import claims

RESULTS = Path(__file__).resolve().parent.parent.parent / "results" / "irreducible_loss"


def test_a_biased_law_is_told_from_one_that_is_not():
    spread = np.linspace(-0.01, 0.01, 10)
    biases = {"low": -0.1, "right": 0.0}
    table = pd.concat(
        [
            pd.DataFrame({"law": law, "L_0": 1.5 + bias + spread, "truth": 1.5, "reached": 1.5})
            for law, bias in biases.items()
        ]
    ).assign(covers=True, covers_reached=False, level=0.9)
    found = {(one.question, one.condition): one for one in claims.biases(table)}
    assert found[claims.TRUE, "low"].verdict == "opposite shown"
    assert found[claims.TRUE, "right"].verdict == "undecided"
    assert "its 90% interval covers it in 10 of 10 seeds" in found[claims.TRUE, "right"].note
    assert "in 0 of 10 seeds" in found[claims.FLOOR, "right"].note


def test_the_committed_laws_miss_the_language():
    found = {(one.question, one.condition): one.verdict for one in claims.claims(RESULTS)}
    laws = ("surface", "surface, m = 1/2", "surface, m free", "surface, Adam clock")
    assert {found[claims.TRUE, law] for law in laws} == {"opposite shown"}
    assert {found[claims.FLOOR, law] for law in laws[:3]} == {"opposite shown"}
    assert found[claims.FLOOR, "surface, Adam clock"] == "undecided"
