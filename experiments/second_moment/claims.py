"""What decides the best batch, from the committed tables. Derived here, no paper's claim.

The guess of results/predictions/second_moment.json is scored as it was written by `judged.score`;
the claims here pass both tests, as all others do. They are of the seeds that the registration adds
where scatter asks for them too: both rules at every batch again, on one device.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from bss.points.claims import Claim
from bss.points.contrasts import contrasts, over_seeds
from bss.points.standings import ENDINGS
from experiments.second_moment import growing, slower
from experiments.second_moment.half_lives import beta2_of
from experiments.second_moment.judged import (
    STEP,
    TOKENS,
    Cell,
    Config,
    Part,
    best_inner,
    judged,
    losses,
    read_curves,
    read_part,
)
from experiments.second_moment.told import LARGER, ended_lower, told

INSIDE = "At its own rate an end of the batches measured is worse than the best one between"
MOVES = "beta2 per step in place of a half-life makes the smallest batch worse beside a larger one"
RULES = "rules_h100"


def claims(results: Path) -> list[Claim]:
    """Every claim of the parts that were run, from a results directory of this experiment."""
    parts = {path.name: read_part(path) for path in results.iterdir() if path.is_dir()}
    made = rules(*parts[RULES]) if RULES in parts else []
    made += [one for name in ("short", "long") if name in parts for one in ends(parts, name)]
    if {RULES, "slower"} <= parts.keys():
        made += slower.claims(parts[RULES], parts["slower"])
    curves = {name: read_curves(results / name) for name in ("large", "steps") if name in parts}
    return made + growing.claims(parts, curves)


def rules(table: pd.DataFrame, config: Config) -> list[Claim]:
    """The two rules at tuned rates, a family for each ending and statement.

    Args:
        table: contenders.csv.
        config: of the study.
    """
    ended, inner = losses(judged(table, config)), best_inner(table, config)
    made = []
    for ending in (known for known in ENDINGS if (STEP, known) in ended):
        made += inside(ended, inner, ending, RULES)
        made += larger(ended, ending, config)
        made += moved(ended, inner, ending)
    return made


def ends(parts: Mapping[str, Part], name: str) -> Iterator[Claim]:
    """Where the best batch of another part lies."""
    table, config = parts[name]
    ended, inner = losses(judged(table, config)), best_inner(table, config)
    length = config["setup"]["text"]["seq_len"]
    where = f"{length}-token sequences, {config['setup']['schedule']['tokens'] / 1e6:g}M tokens"
    for ending in (known for known in ENDINGS if (STEP, known) in ended):
        yield from inside(ended, inner, ending, name, where)


def inside(
    ended: Mapping[Cell, pd.DataFrame],
    inner: Mapping[Cell, float],
    ending: str,
    part: str,
    where: str = "",
) -> Iterator[Claim]:
    """Both ends of the batches of each rule less the best batch between them."""
    tables, pairs = [], []
    for (rule, own), table in ended.items():
        if own == ending:
            named = table.set_axis([f"{rule}, batch {batch:g}" for batch in table.index])
            tables.append(named)
            between = f"{rule}, batch {inner[rule, ending]:g}"
            pairs += [(end, between) for end in named.index[[0, -1]]]
    found = contrasts(pd.concat(tables), pairs)
    for (end, between), effect in found.items():
        condition = ", ".join(filter(None, (end, where, ENDINGS[ending].short)))
        note = f"less {between}, chosen by held-out loss"
        yield told(INSIDE, condition, effect, part, note, sign=1)


def larger(ended: dict[Cell, pd.DataFrame], ending: str, config: Config) -> Iterator[Claim]:
    """At each batch the rule with the larger beta2 less the other: a floor under beta2, derived."""
    steps, tokens = ended[STEP, ending], ended[TOKENS, ending]
    beta2s = {batch: _beta2s(config, int(batch)) for batch in steps.index}
    differences = {
        batch: (steps.loc[batch] - tokens.loc[batch]).to_numpy(float)
        * (1 if beta2s[batch][0] > beta2s[batch][1] else -1)
        for batch in steps.index
    }
    for batch, effect in over_seeds(differences).items():
        high, low = sorted(beta2s[batch], reverse=True)
        note = f"beta2 {high:.4g} less {low:.4g}, each at its own rate"
        yield ended_lower(LARGER, f"batch {batch}, {ENDINGS[ending].short}", effect, RULES, note)


def moved(
    ended: dict[Cell, pd.DataFrame], inner: dict[Cell, float], ending: str
) -> Iterator[Claim]:
    """What the rule does to the smallest batch, less that to the best inner one of .95 per step."""
    steps, tokens = ended[STEP, ending], ended[TOKENS, ending]
    smallest, between = steps.index[0], inner[STEP, ending]
    apart = [table.loc[smallest] - table.loc[between] for table in (steps, tokens)]
    found = over_seeds({ending: (apart[0] - apart[1]).dropna().to_numpy(float)})
    condition = f"batch {smallest} less {between:g}, {ENDINGS[ending].short}"
    note = "a difference of differences, every loss at its own rate"
    for effect in found.values():
        yield told(MOVES, condition, effect, RULES, note, sign=1)


def _beta2s(config: Config, batch: int) -> tuple[float, float]:
    """beta2 under .95 per step and under the half-life, at a batch."""
    changes = {rule["name"]: rule["changes"] for rule in config["rules"]}
    tokens = batch * config["setup"]["text"]["seq_len"]
    return beta2_of(changes[STEP], tokens), beta2_of(changes[TOKENS], tokens)
