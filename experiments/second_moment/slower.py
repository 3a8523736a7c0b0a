"""What slower second moments show, with momentum and clipping: is it the rule, or the batch?"""

from collections.abc import Iterator, Mapping

import pandas as pd

from bss.points.claims import Claim
from bss.points.contrasts import contrasts, over_seeds
from bss.points.standings import ENDINGS
from experiments.second_moment.half_lives import cells, compared, envelope
from experiments.second_moment.losses import (
    LARGER,
    STEP,
    TOKENS,
    Cell,
    Config,
    Part,
    endings_of,
    in_part,
    of_both,
)

ENVELOPE = "With each batch at the best of four rules of beta2 an end is worse than one between"
HALF_LIFE = "Left-out (batch, rule) cells are predicted better than by the batch alone"
CONTROLS = {
    "optimizer.beta1": "Momentum kept per token as beta2 is, not .9 per step, ends lower",
    "optimizer.clip": "Without clipping a run ends lower",
}
PAIRS = {"half-life 28K": TOKENS, "0.99 per step": STEP}
lower = in_part("slower")


def claims(rules: Part, slower: Part) -> list[Claim]:
    """Of the registered rules and the slower ones, on the seeds that both judge."""
    ended, config = of_both(rules, slower)
    chose = rules.chose | slower.chose
    every = []
    for ending in endings_of(ended):
        four = {rule: ended[rule, ending] for rule in (*PAIRS, *PAIRS.values())}
        every += slower_than(four, ending)
        every += enveloped(four, {rule: chose[rule, ending] for rule in four}, ending)
        every += by_half_life({(r, ending): t for r, t in four.items()}, ending, config)
        every += controlled(ended, ending, config)
    return every


def slower_than(four: Mapping[str, pd.DataFrame], ending: str) -> Iterator[Claim]:
    """The slower of two rules of one kind less the faster, at each batch."""
    for slow, fast in PAIRS.items():
        apart = (four[slow] - four[fast]).dropna(axis="columns", how="all")
        values = {batch: apart.loc[batch].dropna().to_numpy(float) for batch in apart.index}
        for batch, effect in over_seeds(values).items():
            condition = f"{slow} less {fast}, batch {batch}, {ENDINGS[ending].short}"
            yield lower(LARGER, "derived", condition, effect, note="each at its own rate")


def enveloped(
    four: Mapping[str, pd.DataFrame], chose: Mapping[str, pd.DataFrame], ending: str
) -> Iterator[Claim]:
    """Both ends of the batches, each at its best rule, less the best between them."""
    shared = sorted(set.intersection(*(set(table.columns) for table in four.values())))
    judged_on = {rule: table.loc[:, shared] for rule, table in four.items()}
    table, best = envelope(judged_on, {rule: chose[rule] for rule in four})
    inner = min([*best][1:-1], key=lambda batch: float(chose[best[batch]].loc[batch].mean()))
    named = table.set_axis([f"batch {batch}" for batch in table.index])
    pairs = [(end, f"batch {inner}") for end in named.index[[0, -1]]]
    for (end, _), effect in contrasts(named, pairs).items():
        own = best[int(end.split()[1])]
        note = f"less batch {inner}; {own} against {best[inner]}, rules chosen by held-out loss"
        condition = f"{end}, {ENDINGS[ending].short}"
        yield lower(ENVELOPE, "derived", condition, effect, note=note, sign=1)


def by_half_life(
    ended: Mapping[Cell, pd.DataFrame], ending: str, config: Config
) -> Iterator[Claim]:
    """Errors at left-out cells of models with the half-life, less that of the batch alone."""
    for model, effect in compared(cells(dict(ended), ending, config)).items():
        note = "rms error at cells left out one by one, parabolas in logarithms, 24 cells a seed"
        condition = f"{model}, {ENDINGS[ending].short}"
        yield lower(HALF_LIFE, "derived", condition, effect, note=note, matters=0.0)


def controlled(ended: Mapping[Cell, pd.DataFrame], ending: str, config: Config) -> Iterator[Claim]:
    """One thing changed beside the half-life of 7K, at the ends of the batches."""
    for field, statement in CONTROLS.items():
        values = {}
        for rule in (one["name"] for one in config["rules"] if field in one["changes"]):
            (batch,) = ended[rule, ending].index
            apart = ended[rule, ending].loc[batch] - ended[TOKENS, ending].loc[batch]
            condition = f"{rule.removesuffix(f' at {batch}')}, batch {batch}"
            values[condition] = apart.dropna().to_numpy(float)
        for condition, effect in over_seeds(values).items():
            condition = f"{condition}, {ENDINGS[ending].short}"
            note = "the control at one rate, the rule at its own"
            yield lower(statement, "derived", condition, effect, note=note)
