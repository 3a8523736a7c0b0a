"""What decides the best batch, from the committed tables. Derived here, no paper's claim.

The guess of results/predictions/second_moment.json is scored as it was written by `losses.score`;
the claims here pass both tests, as all others do. They are of the seeds that the registration adds
where scatter asks for them too: both rules at every batch again, on one device.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from bss.contests.claims import Claim, Question
from bss.contests.contest import ENDINGS
from bss.contests.contrasts import contrasts, over_seeds
from experiments.second_moment import growing, scores, slower
from experiments.second_moment.losses import (
    LARGER,
    STEP,
    TOKENS,
    Part,
    endings_of,
    place,
    read_part,
)
from experiments.second_moment.slower import beta2_of

INSIDE = Question.of_loss(
    "At its own rate an end of the batches measured is worse than the best one between", sign=1
)
MOVES = Question.of_loss(
    "beta2 per step in place of a half-life makes the smallest batch worse beside a larger one",
    sign=1,
)
RULES = "rules_h100"


def claims(results: Path) -> list[Claim]:
    """Every claim of the parts that were run, from a results directory of this experiment."""
    parts = {path.name: read_part(path) for path in results.iterdir() if path.is_dir()}
    every = [*rules(parts[RULES])] if RULES in parts else []
    for name in ("short", "long"):
        every += ends(parts[name], name) if name in parts else []
    if {RULES, "slower"} <= parts.keys():
        every += slower.claims(parts[RULES], parts["slower"])
    return [*every, *growing.claims(parts), *scores.claims(parts)]


def rules(part: Part) -> Iterator[Claim]:
    """The two rules at tuned rates, a family for each ending and statement."""
    for ending in endings_of(part.judged):
        yield from inside(part, ending, RULES)
        yield from larger(part, ending)
        yield moved(part, ending)


def ends(part: Part, name: str) -> Iterator[Claim]:
    """Where the best batch of another part lies."""
    tokens = part.config["setup"]["schedule"]["tokens"]
    where = f"{part.seq_len}-token sequences, {tokens / 1e6:g}M tokens"
    for ending in endings_of(part.judged):
        yield from inside(part, ending, name, where)


def inside(part: Part, ending: str, name: str, where: str = "") -> Iterator[Claim]:
    """Both ends of the batches of each rule less the best batch between them."""
    tables, pairs = [], []
    for (rule, own), table in part.judged.items():
        if own == ending:
            named = table.set_axis([f"{rule}, batch {batch:g}" for batch in table.index])
            tables.append(named)
            between = f"{rule}, batch {part.inner[rule, ending]:g}"
            pairs += [(end, between) for end in named.index[[0, -1]]]
    for (end, between), effect in contrasts(pd.concat(tables), pairs).items():
        condition = ", ".join(filter(None, (end, where, ENDINGS[ending].short)))
        note = f"less {between}, chosen by held-out loss"
        yield INSIDE.claim(condition, effect, place(name), note)


def larger(part: Part, ending: str) -> Iterator[Claim]:
    """At each batch the rule with the larger beta2 less the other: a floor under beta2, derived."""
    steps, tokens = part.judged[STEP, ending], part.judged[TOKENS, ending]
    beta2s = {batch: _beta2s(part, int(batch)) for batch in steps.index}
    differences = {
        batch: (steps.loc[batch] - tokens.loc[batch]).to_numpy(float)
        * (1 if beta2s[batch][0] > beta2s[batch][1] else -1)
        for batch in steps.index
    }
    for batch, effect in over_seeds(differences).items():
        high, low = sorted(beta2s[batch], reverse=True)
        note = f"beta2 {high:.4g} less {low:.4g}, each at its own rate"
        condition = f"batch {batch}, {ENDINGS[ending].short}"
        yield LARGER.claim(condition, effect, place(RULES), note)


def moved(part: Part, ending: str) -> Claim:
    """What the rule does to the smallest batch, less that to the best inner one of .95 per step."""
    steps, tokens = part.judged[STEP, ending], part.judged[TOKENS, ending]
    smallest, between = steps.index[0], part.inner[STEP, ending]
    apart = [table.loc[smallest] - table.loc[between] for table in (steps, tokens)]
    effect = over_seeds({0: (apart[0] - apart[1]).dropna().to_numpy(float)})[0]
    condition = f"batch {smallest} less {between:g}, {ENDINGS[ending].short}"
    note = "a difference of differences, every loss at its own rate"
    return MOVES.claim(condition, effect, place(RULES), note)


def _beta2s(part: Part, batch: int) -> tuple[float, ...]:
    """beta2 under .95 per step and under the half-life, at a batch."""
    changes = {rule["name"]: rule["changes"] for rule in part.config["rules"]}
    return tuple(beta2_of(changes[rule], batch * part.seq_len) for rule in (STEP, TOKENS))
