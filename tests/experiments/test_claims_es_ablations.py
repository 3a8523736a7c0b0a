"""What the ablations claim: planted tables, and the committed ones."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.es_ablations import claims

RESULTS = Path(__file__).resolve().parent.parent.parent / "results" / "es_ablations"
CONFIG = json.loads((RESULTS / "experiment.json").read_text())["config"]
LATE, RAMP = "0:4 700K:32", "0:2 250K:4 600K:8"
FIRST, COSINE, LONGER = "as in E(S) under WSD", "cosine", "sequences × 4 at the switch"
DECAY = "weight decay 0.1"


def finals(losses, seeds=8, scatter=0.002):
    """Final losses by variation and contender, about planted means."""
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {
                "variation": variation,
                "name": name,
                "role": "constant" if name.startswith("constant") else "late",
                "ending": "constant",
                "seed": seed,
                "eval_loss": loss,
                "test_loss": loss + scatter * generator.normal(),
            }
            for (variation, name), loss in losses.items()
            for seed in range(seeds)
        ]
    )


def verdicts(made):
    return {one.condition: one.verdict for one in made}


def test_growing_is_judged_under_each_change_and_ending():
    table = finals(
        {
            (FIRST, "constant 4"): 1.6,
            (FIRST, "constant 32"): 2.0,
            (FIRST, LATE): 1.5,
            (COSINE, "constant 4"): 1.5,
            (COSINE, LATE): 1.6,
        }
    )
    assert verdicts(claims.growing(table, CONFIG)) == {
        f"{FIRST}, 4 → 32, raw weights": "shown",
        "cosine, 4 → 32": "opposite shown",
    }


@pytest.mark.parametrize(
    ("moved", "verdict"), [(0.0, "undecided"), (0.003, "undecided"), (0.05, "opposite shown")]
)
def test_weight_decay_is_judged_on_dynamic_batches(moved, verdict):
    table = finals(
        {
            (FIRST, "constant 4"): 1.5,
            (FIRST, LATE): 1.5,
            (DECAY, "constant 4"): 1.6,  # what the constant loses decides nothing
            (DECAY, LATE): 1.5 + moved,
        }
    )
    (one,) = claims.weight_decay(table, CONFIG)
    assert (one.condition, one.verdict) == (f"{DECAY}, 4 → 32, raw weights", verdict)
    assert "constant 4 itself moves by +0.0997" in one.note


def test_a_little_effect_is_shown_only_by_precise_runs():
    losses = {(who, LATE): 1.5 for who in (FIRST, DECAY)} | {(FIRST, "constant 4"): 1.5}
    (one,) = claims.weight_decay(finals(losses, scatter=1e-4), CONFIG)
    assert one.verdict == "shown"


def test_longer_sequences_are_not_judged_on_short_ones():
    table = finals({(FIRST, "constant 4"): 1.6, (FIRST, LATE): 1.5, (LONGER, "0:4 700K:8"): 1.7})
    (one,) = claims.longer_sequences(table, CONFIG)
    assert one.effect.sign == 1
    assert one.verdict == "undecided"
    assert "on sequences of 64 alone, not on those of 256" in one.note
    (alone,) = claims.longer_sequences(table.loc[table["seed"] == 0], CONFIG)
    assert alone.verdict == "not testable here"


def test_the_committed_tables_decide_what_both_tests_show():
    table = pd.read_csv(RESULTS / "contenders.csv")
    found = verdicts(claims.growing(table, CONFIG))
    assert {told for told, verdict in found.items() if verdict == "shown"} == {
        f"{change}, 4 → 32, raw weights" for change in (FIRST, DECAY, "warm-up × 4")
    }
    assert "opposite shown" not in found.values()
    assert set(verdicts(claims.weight_decay(table, CONFIG)).values()) == {"undecided"}
    assert set(verdicts(claims.longer_sequences(table, CONFIG)).values()) == {"undecided"}


def test_the_committed_optima_rise_nowhere_surely():
    names = "points", "optima", "contenders"
    tables = (pd.read_csv(RESULTS / f"{name}.csv") for name in names)
    found = verdicts(claims.sizes(claims.varied(*tables), CONFIG))
    assert set(found.values()) == {"undecided", "not testable here"}
    assert found["12,416 parameters, stable loss"] == "not testable here"
    assert found["27,816 parameters, stable loss, at least"] == "undecided"


def test_buckets_were_repeated_with_one_seed():
    ladders, table = (pd.read_csv(RESULTS / f"{name}.csv") for name in ("ladders", "contenders"))
    one = claims.micro_batches(ladders, table, CONFIG)
    assert (one.verdict, one.effect.n) == ("not testable here", 1)
    assert "within 0.0023 nats; seeds scatter by 0.0122" in one.note
