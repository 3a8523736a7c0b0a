"""The registered order of the two smallest batches, by the one test of runs to come.

The other predictions of results/predictions/ladder.json are scored in scores.csv.
"""

from collections.abc import Iterator
from pathlib import Path

from bss.contests.claims import Claim, Question
from bss.contests.moderated import moderated
from experiments.ladder.scores import ended
from experiments.tables import Tables

QUESTION = Question.of_loss(
    "Up the ladder the smallest batch, 256 tokens, ends below twice that, decayed"
)
PARTS = ("es_99k", "es_380k")


def claims(results: Path) -> Iterator[Claim]:
    """At each rung and budget of which two seeds have ended, from a results directory."""
    parts = [part for part in PARTS if "finals.csv" in Tables(results / part)]
    if not parts:
        return
    table = ended(results)
    for part in parts:
        cells = table.loc[table["part"] == part].groupby("stop")
        for stop, some in cells:
            losses = some.pivot(index="batch", columns="seed", values="test_loss").dropna(axis=1)
            condition = f"{some['params'].iloc[0]:,} parameters, {stop:,} tokens"
            where = f"results/ladder/{part}/finals.csv"
            if losses.shape[1] < 2:
                yield QUESTION.untestable(condition, where, "registered; one seed has ended")
                continue
            pair = ("1", "2")
            yield QUESTION.claim(
                condition, moderated(losses, [pair])[pair], where, "registered; one test"
            )
