"""Every claim, judged from the committed tables: results/claims.json and results/CLAIMS.md.

    python -m experiments.claims

What an experiment claims is in its claims.py: `claims(results)`, from its results directory.
"""

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bss.files import write_json, write_text
from bss.points.claims import Claim, markdown, summary
from bss.values import to_dict
from experiments.critical_batch import best_batch, noise, statements
from experiments.es_wsd import claims as es_wsd
from experiments.late_switch import claims as late_switch
from experiments.second_moment import claims as second_moment
from experiments.second_moment import growing
from experiments.study import say

EXPERIMENTS = (
    "es_wsd",
    "es_ablations",
    "irreducible_loss",
    "late_switch",
    "second_moment",
    "optimal_schedule",
    "critical_batch",
    "critical_theory",
    "predictions",
)
HEAD = """# Claims, and what was measured of them

Written by `python -m experiments.claims` from the tables of this directory; with p values, the
smallest effect that would have been seen, and notes: [claims.json](claims.json). A verdict needs
two tests, each after Holm within its table and ending at 95%: the effect's own Student t over
paired seeds, and t with the scatter pooled over all that scatter alike. Decided ones come with the
effect and its adjusted 95% interval.
"""


class Question(NamedTuple):
    """What a practitioner would ask: which claim answers it, where, and the size of the models."""

    text: str
    statement: str
    conditions: str
    size: str


NANO = "99k parameters"
HALF, WHOLE = f"{NANO}, 0.5M tokens", f"{NANO}, 1M tokens"
PUBLISHED = "215M to 1.07B parameters, published"
ENDING = "rate$|weights$|decayed$|cosine$"
ASKED = (
    Question(
        "Is batch 1 too small, at beta2 .95 per step and a tuned rate?",
        second_moment.INSIDE,
        "^0.95 per step, batch 1, (?!16|64)",
        HALF,
    ),
    Question(
        "Is it, at one rate for all batches?",
        second_moment.INSIDE,
        "^0.95 per step, batch 1, 64-token",
        f"{NANO}, 2M tokens",
    ),
    Question(
        "Does beta2 per step, not per token, hurt a small batch?", second_moment.MOVES, "", HALF
    ),
    Question("Does a growing batch win at constant rate?", growing.GROWS, "constant rate$", WHOLE),
    Question("Does it with averaged weights?", growing.GROWS, "averaged weights$", WHOLE),
    Question("Does it after a decay to zero?", growing.GROWS, "decayed$", WHOLE),
    Question("Does following B_opt along the loss win?", es_wsd.FOLLOWS, "^B_opt", WHOLE),
    Question("If the batch grows, is later better?", late_switch.EARLIER, ENDING, WHOLE),
    Question(
        "Is the rate best kept where the batch grows, not raised by the square root?",
        es_wsd.KEPT,
        "",
        WHOLE,
    ),
    Question("Does the best batch grow with the data?", best_batch.BEST_DATA, "", PUBLISHED),
    Question(
        "Does the critical batch grow with model and data?",
        statements.GROWS,
        "",
        "7k to 62k parameters; 85M to 1.2B, published",
    ),
    Question(
        "Is the gradient noise scale that critical batch, within × 1.5?",
        noise.IS_BEND,
        "",
        "7k to 62k parameters",
    ),
)


def collect(results: Path) -> list[Claim]:
    """The claims of every experiment, from the tables in its directory under `results`."""
    return [
        claim
        for name in EXPERIMENTS
        for claim in importlib.import_module(f"experiments.{name}.claims").claims(results / name)
    ]


def answers(claims: Sequence[Claim]) -> str:
    """What practitioners ask, as a Markdown table: verdicts, effects, and of which models.

    Raises:
        ValueError: no claim answers a question.
    """
    rows = [
        "| question | verdict, of how many | effect, 95% interval: lowest, highest | of |",
        "|---|---|---|---|",
    ]
    for text, statement, conditions, size in ASKED:
        matching = [
            one
            for one in claims
            if one.statement == statement and re.search(conditions, one.condition)
        ]
        if not matching:
            raise ValueError(f"{text}: no claim {statement!r} under {conditions!r}")
        verdicts, effect = summary(matching)
        rows.append(f"| {text} | {verdicts} | {effect} | {size} |")
    return "\n".join(rows)


def page(claims: Sequence[Claim]) -> str:
    """What practitioners ask, then every claim with its conditions: results/CLAIMS.md."""
    return f"{HEAD}\n## Asked first\n\n{answers(claims)}\n\n## All\n\n{markdown(claims)}\n"


def main(root: Path = Path()) -> None:
    """Writes results/claims.json and results/CLAIMS.md."""
    claims = collect(root / "results")
    write_json(root / "results" / "claims.json", {"claims": to_dict(claims)})
    write_text(root / "results" / "CLAIMS.md", page(claims))
    counts = {c.verdict: sum(o.verdict == c.verdict for o in claims) for c in claims}
    say(f"{len(claims)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
