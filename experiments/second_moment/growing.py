"""Whether growing the batch pays where beta2 is .95 per step.

Late switching and joining at equal steps: Wang et al., arXiv 2602.14208.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bss.points.claims import Claim, claim
from bss.points.contrasts import contrasts, over_seeds
from bss.points.equal_steps import gaps_at_equal_steps
from bss.points.standings import ENDINGS, NO_WORSE, against_best, ends
from experiments.late_switch.claims import BEST, CLOSES, EARLIER, JOINS
from experiments.second_moment.judged import STEP, Part
from experiments.second_moment.told import told

BOTH = "A batch that grows ends lower than each of its two batches throughout"
GROWS = f"A batch that grows ends {BEST}"
SAVES = "A batch that grows comes to its last loss in fewer tokens than its larger batch alone"
RULE = "beta2 .95 per step"
AGES = ("0:2 70%:8", ("0:2 20%:8", "0:2 50.4%:8"))
GROWN, SMALL, LARGE = "0:1 25%:8", "1", "8"
LOSSES = {"constant": "eval_loss", "averaged": "eval_loss_avg_4%"}


def claims(parts: Mapping[str, Part], curves: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Of the parts switch, large and steps, as far as they were run.

    Args:
        parts: by name.
        curves: of `read_curves`, by name.
    """
    made = []
    if "switch" in parts:
        made += switched(parts["switch"][0])
    if "large" in parts:
        made += grown(parts["large"][0])
    if {"large", "steps"} <= curves.keys():
        made += caught_up(curves["large"], curves["steps"])
    return made


def switched(table: pd.DataFrame) -> Iterator[Claim]:
    """Every switch against the best constant of its ending, and later against earlier ones."""
    for ending in (known for known in ENDINGS if known in set(table["rate"])):
        short = ENDINGS[ending].short
        best, found = against_best(table, ending)
        for name, effect in found.items():
            note = f"less batch {_batch(best)}, chosen by held-out loss; one rate"
            yield told(GROWS, f"{_batch(name)}, {RULE}, {short}", effect, "switch", note, sign=-1)
        late, earlier = AGES
        pairs = [(_name(late), _name(early)) for early in earlier]
        for (_, early), effect in contrasts(ends(table, ending), pairs).items():
            condition = f"{late} less {_batch(early)}, {RULE}, {short}"
            yield told(
                EARLIER, condition, effect, "switch", "one rate", sign=-1, source="secondary"
            )


def grown(table: pd.DataFrame) -> Iterator[Claim]:
    """The run that grows less the constants of its two batches, with tokens enough for both."""
    for ending in (known for known in ENDINGS if known in set(table["rate"])):
        pairs = [(_name(GROWN), _name(batch)) for batch in (SMALL, LARGE)]
        for (_, batch), effect in contrasts(ends(table, ending), pairs).items():
            condition = f"{GROWN} less batch {_batch(batch)}, {RULE}, 4M tokens"
            condition = f"{condition}, {ENDINGS[ending].short}"
            yield told(BOTH, condition, effect, "large", "one rate", sign=-1)


def caught_up(large: pd.DataFrame, steps: pd.DataFrame) -> Iterator[Claim]:
    """The run that grows beside its larger batch: at equal steps, and at equal losses."""
    grows = large.loc[large["role"] == "schedule"]
    gaps = gaps_at_equal_steps(grows, steps)
    first, last = gaps.iloc[0], gaps.iloc[-1]
    place = "results/second_moment/large/runs.parquet"
    values = {CLOSES: (last - first).to_numpy(), JOINS: last.to_numpy() - NO_WORSE}
    begun = int(grows.loc[grows["batch"] == int(SMALL), "step"].max())
    condition = f"{GROWN}, {int(gaps.index[-1]) - begun:,} steps after the change, {RULE}"
    note = f"held-out losses, one rate; {first.mean():.3f} nats before the change, "
    note += f"{last.mean() / first.mean():.0%} of them left"
    condition = f"{condition}, constant rate"
    known: dict[str, Any] = {"sign": -1, "table": place}
    for statement, effect in over_seeds(values).items():
        yield claim(statement, "paper", condition, effect, unit="nats", note=note, **known)
    saved = {ending: _saved(grows, steps, column) for ending, column in LOSSES.items()}
    for ending, effect in over_seeds(saved).items():
        share = 1 - np.exp(effect.estimate)
        note = f"held-out losses, one rate, 4M tokens; {share:.0%} of the larger batch's saved"
        condition = f"{GROWN}, {RULE}, {ENDINGS[ending].short}"
        unit = "of the log of tokens"
        yield claim(SAVES, "paper", condition, effect, unit=unit, note=note, **known)


def _saved(grows: pd.DataFrame, alone: pd.DataFrame, column: str) -> np.ndarray:
    """Log of its tokens over those in which the larger batch alone falls to its last loss, [seed].

    A seed at which the larger batch does not come so low is left out.
    """
    found = []
    for seed, run in grows.groupby("seed"):
        last = run.sort_values("tokens").iloc[-1]
        other = alone.loc[alone["seed"] == seed].sort_values("tokens")
        lowest = np.minimum.accumulate(other[column].to_numpy(float))
        if lowest[-1] <= last[column]:
            tokens = np.interp(-last[column], -lowest, np.log(other["tokens"].to_numpy(float)))
            found.append(np.log(last["tokens"]) - tokens)
    return np.array(found)


def _name(batch: str) -> str:
    return f"{STEP} · {batch}"


def _batch(name: str) -> str:
    return name.removeprefix(_name(""))
