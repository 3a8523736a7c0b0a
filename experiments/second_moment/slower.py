"""What slower second moments show, with momentum and clipping: is it the rule, or the batch?

Every cell is a batch under a rule, at its own rate. If the batch is bad for what its rule makes of
the second moment, a model with the half-life in it predicts left-out cells better than one with the
batch alone (derived here). The envelope has each batch at its best rule.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question
from bss.contests.contest import ENDINGS
from bss.contests.contrasts import Contrast, contrasts, over_seeds
from bss.schedules.coupling import Coupling, half_life
from experiments.second_moment.losses import (
    LARGER,
    STEP,
    TOKENS,
    Cell,
    Config,
    Part,
    endings_of,
    of_both,
    place,
)

ENVELOPE = Question.of_loss(
    "With each batch at the best of four rules of beta2 an end is worse than one between", sign=1
)
HALF_LIFE = Question(
    "Left-out (batch, rule) cells are predicted better than by the batch alone", "derived"
)
CONTROLS = {
    "optimizer.beta1": Question.of_loss(
        "Momentum kept per token as beta2 is, not .9 per step, ends lower"
    ),
    "optimizer.clip": Question.of_loss("Without clipping a run ends lower"),
}
PAIRS = {"half-life 28K": TOKENS, "0.99 per step": STEP}
TABLE = place("slower")
MODELS: dict[str, tuple[str, ...]] = {
    "batch alone": ("batch",),
    "half-life in tokens": ("tokens",),
    "half-life in steps": ("steps",),
    "batch and half-life in tokens": ("batch", "tokens"),
    "batch and half-life in steps": ("batch", "steps"),
}
"""What each model has a parabola in the logarithm of."""


def claims(rules: Part, slower: Part) -> Iterator[Claim]:
    """Of the registered rules and the slower ones, on the seeds that both judge."""
    ended, config = of_both(rules, slower)
    chose = rules.chose | slower.chose
    for ending in endings_of(ended):
        four = {rule: ended[rule, ending] for rule in (*PAIRS, *PAIRS.values())}
        yield from slower_than(four, ending)
        yield from enveloped(four, {rule: chose[rule, ending] for rule in four}, ending)
        yield from by_half_life(four, ending, config)
        yield from controlled(ended, ending, config)


def slower_than(four: Mapping[str, pd.DataFrame], ending: str) -> Iterator[Claim]:
    """The slower of two rules of one kind less the faster, at each batch."""
    for slow, fast in PAIRS.items():
        apart = (four[slow] - four[fast]).dropna(axis="columns", how="all")
        values = {batch: apart.loc[batch].dropna().to_numpy(float) for batch in apart.index}
        for batch, effect in over_seeds(values).items():
            condition = f"{slow} less {fast}, batch {batch}, {ENDINGS[ending].short}"
            yield LARGER.claim(condition, effect, TABLE, "each at its own rate")


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
        yield ENVELOPE.claim(condition, effect, TABLE, note)


def by_half_life(four: Mapping[str, pd.DataFrame], ending: str, config: Config) -> Iterator[Claim]:
    """Errors at left-out cells of models with the half-life, less that of the batch alone."""
    for model, effect in compared(cells(four, config)).items():
        note = "rms error at cells left out one by one, parabolas in logarithms, 24 cells a seed"
        condition = f"{model}, {ENDINGS[ending].short}"
        yield HALF_LIFE.claim(condition, effect, TABLE, note)


def controlled(ended: Mapping[Cell, pd.DataFrame], ending: str, config: Config) -> Iterator[Claim]:
    """One thing changed beside the half-life of 7K, at the ends of the batches."""
    for field, question in CONTROLS.items():
        values = {}
        for rule in (one["name"] for one in config["rules"] if field in one["changes"]):
            (batch,) = ended[rule, ending].index
            apart = ended[rule, ending].loc[batch] - ended[TOKENS, ending].loc[batch]
            condition = f"{rule.removesuffix(f' at {batch}')}, batch {batch}"
            values[condition] = apart.dropna().to_numpy(float)
        for condition, effect in over_seeds(values).items():
            condition = f"{condition}, {ENDINGS[ending].short}"
            note = "the control at one rate, the rule at its own"
            yield question.claim(condition, effect, TABLE, note)


def cells(tables: Mapping[str, pd.DataFrame], config: Config) -> pd.DataFrame:
    """A row for each rule and batch: rule, batch, tokens and steps of its half-life; seeds follow.

    Args:
        tables: losses [batch, seed] by rule, of one ending.
        config: of a study with all the rules.
    """
    changes = {rule["name"]: rule["changes"] for rule in config["rules"]}
    length, rows = config["setup"]["text"]["seq_len"], []
    for rule, table in tables.items():
        for batch, losses in zip(table.index, table.to_numpy(float), strict=True):
            tokens = half_life_of(changes[rule], int(batch) * length)
            steps = tokens / (int(batch) * length)
            cell = {"rule": rule, "batch": batch, "tokens": tokens, "steps": steps}
            rows.append(cell | dict(zip(table.columns, losses, strict=True)))
    return pd.DataFrame(rows).dropna(axis="columns")


def beta2_of(changes: dict, batch_tokens: int) -> float:
    """A rule's beta2, at a step of so many tokens."""
    beta2 = changes.get("optimizer.beta2", Coupling.beta2)
    coupling = Coupling(beta2=beta2, beta2_half_life=changes["optimizer.beta2_half_life"] or None)
    return coupling.settings(1.0, 1, batch_tokens).beta2


def half_life_of(changes: dict, batch_tokens: int) -> float:
    """The half-life of a rule's second moment in tokens, at a step of so many tokens."""
    return half_life(beta2_of(changes, batch_tokens), batch_tokens)


def left_out(table: pd.DataFrame, model: str) -> np.ndarray:
    """Rms error in nats of a model at cells left out one by one, of each seed fitted alone.

    Args:
        table: as of `cells`.
        model: of MODELS.
    """
    logs = [np.log(table[name].to_numpy(float)) for name in MODELS[model]]
    design = np.stack([np.ones(len(table)), *(x**k for x in logs for k in (1, 2))], axis=1)
    losses = table.drop(columns=["rule", "batch", "tokens", "steps"]).to_numpy(float)
    # The residual of a cell left out is its own over one less its leverage.
    hat = design @ np.linalg.pinv(design)
    residuals = (losses - hat @ losses) / (1 - np.diag(hat))[:, None]
    return np.sqrt(np.mean(residuals**2, axis=0))


def compared(table: pd.DataFrame) -> dict[str, Contrast]:
    """Every model's error at left-out cells less that of the batch alone, over seeds."""
    first, *others = MODELS
    alone = left_out(table, first)
    return over_seeds({model: left_out(table, model) - alone for model in others})


def envelope(
    judged: Mapping[str, pd.DataFrame], chose: Mapping[str, pd.DataFrame]
) -> tuple[pd.DataFrame, dict[int, str]]:
    """Each batch at its best rule: losses [batch, seed], and the rule by batch.

    Args:
        judged: losses [batch, seed] by rule, of the seeds that are judged.
        chose: held-out losses by rule, of the seeds that choose.
    """
    means = pd.DataFrame({rule: table.mean(axis="columns") for rule, table in chose.items()})
    best = {int(str(batch)): str(rule) for batch, rule in means.idxmin(axis="columns").items()}
    rows = {batch: judged[rule].loc[batch] for batch, rule in best.items()}
    return pd.DataFrame(rows).T.dropna(axis="columns"), best
