"""Whether growing the batch pays where beta2 is .95 per step.

Late switching and joining at equal steps: Wang et al., arXiv 2602.14208.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question
from bss.contests.contest import ENDINGS, NO_WORSE, Contest
from bss.contests.contrasts import over_seeds
from bss.contests.equal_steps import gaps_at_equal_steps
from experiments.late_switch.claims import BEST, CLOSES, EARLIER, JOINS
from experiments.second_moment.losses import STEP, Part, place

BOTH = Question.of_loss("A batch that grows ends lower than each of its two batches throughout")
GROWS = Question.of_loss(f"A batch that grows ends {BEST}")
SAVES = Question(
    "A batch that grows comes to its last loss in fewer tokens than its larger batch alone",
    "paper",
    unit="of the log of tokens",
)
RULE = "beta2 .95 per step"
AGES = ("0:2 70%:8", ("0:2 20%:8", "0:2 50.4%:8"))
GROWN, SMALL, LARGE = "0:1 25%:8", "1", "8"
LOSSES = {"constant": "eval_loss", "averaged": "eval_loss_avg_4%"}


def claims(parts: Mapping[str, Part]) -> Iterator[Claim]:
    """Of the parts switch, large and steps, as far as they were run."""
    if "switch" in parts:
        yield from switched(Contest(parts["switch"].contenders))
    if "large" in parts:
        yield from grown(Contest(parts["large"].contenders))
    if {"large", "steps"} <= parts.keys():
        yield from caught_up(parts["large"], parts["steps"].runs)


def switched(contest: Contest) -> Iterator[Claim]:
    """Every switch against the best constant of its ending, and later against earlier ones."""
    late, earlier = AGES
    for ending in contest.endings:
        short = ENDINGS[ending].short
        best, effects = contest.against_best(ending)
        note = f"less batch {named(best)}, chosen by held-out loss; one rate"
        for name, effect in effects.items():
            condition, runs = f"{named(name)}, {RULE}, {short}", contest.runs(name, ending)
            yield GROWS.claim(condition, effect, place("switch"), note, runs=runs)
        pairs = [(_name(late), _name(early)) for early in earlier]
        for (_, early), effect in contest.contrasts(ending, pairs).items():
            condition = f"{late} less {named(early)}, {RULE}, {short}"
            yield EARLIER.claim(condition, effect, place("switch"), "one rate")


def grown(contest: Contest) -> Iterator[Claim]:
    """The run that grows less the constants of its two batches, with tokens enough for both."""
    for ending in contest.endings:
        pairs = [(_name(GROWN), _name(batch)) for batch in (SMALL, LARGE)]
        for (_, batch), effect in contest.contrasts(ending, pairs).items():
            condition = f"{GROWN} less batch {named(batch)}, {RULE}, 4M tokens"
            condition = f"{condition}, {ENDINGS[ending].short}"
            yield BOTH.claim(condition, effect, place("large"), "one rate")


def caught_up(large: Part, steps: pd.DataFrame) -> Iterator[Claim]:
    """The run that grows beside its larger batch: at equal steps, and at equal losses."""
    schedules = large.contenders.loc[large.contenders["role"] == "schedule", "run"]
    grows = large.runs.loc[large.runs["run"].isin(schedules)]
    gaps = gaps_at_equal_steps(grows, steps)
    first, last = gaps.iloc[0], gaps.iloc[-1]
    table = "results/second_moment/large/runs.parquet"
    values = {CLOSES: (last - first).to_numpy(), JOINS: last.to_numpy() - NO_WORSE}
    begun = int(grows.loc[grows["batch"] == int(SMALL), "step"].max())
    condition = f"{GROWN}, {int(gaps.index[-1]) - begun:,} steps after the change, {RULE}"
    note = f"held-out losses, one rate; {first.mean():.3f} nats before the change, "
    note += f"{last.mean() / first.mean():.0%} of them left"
    condition = f"{condition}, constant rate"
    for question, effect in over_seeds(values).items():
        yield question.claim(condition, effect, table, note)
    saved = {ending: tokens_saved(grows, steps, column) for ending, column in LOSSES.items()}
    for ending, effect in over_seeds(saved).items():
        share = 1 - np.exp(effect.estimate)
        note = f"held-out losses, one rate, 4M tokens; {share:.0%} of the larger batch's saved"
        condition = f"{GROWN}, {RULE}, {ENDINGS[ending].short}"
        yield SAVES.claim(condition, effect, table, note)


def tokens_saved(grows: pd.DataFrame, alone: pd.DataFrame, column: str) -> np.ndarray:
    """Log of its tokens over those in which the larger batch alone falls to its last loss, [seed].

    A seed at which the larger batch does not come so low is left out.
    """
    logs = []
    for seed, run in grows.groupby("seed"):
        last = run.sort_values("tokens").iloc[-1]
        other = alone.loc[alone["seed"] == seed].sort_values("tokens")
        lowest = np.minimum.accumulate(other[column].to_numpy(float))
        if lowest[-1] <= last[column]:
            tokens = np.interp(-last[column], -lowest, np.log(other["tokens"].to_numpy(float)))
            logs.append(np.log(last["tokens"]) - tokens)
    return np.array(logs)


def _name(batch: str) -> str:
    return f"{STEP} · {batch}"


def named(name: str) -> str:
    """A contender by its batches alone."""
    return name.removeprefix(_name(""))
