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
PUBLISHED = "215M to 1.07B parameters, published"
GROWS = "A batch that grows ends lower than the best constant batch"
INSIDE = "At its own rate an end of the batches measured is worse than the best one between"
ASKED = (
    Question(
        "Is batch 1 too small, at beta2 .95 per step and a tuned rate?",
        INSIDE,
        "^0.95 per step, batch 1, (?!16|64)",
        f"{NANO}, 0.5M tokens",
    ),
    Question(
        "Is it, at one rate for all batches?",
        INSIDE,
        "^0.95 per step, batch 1, 64-token",
        f"{NANO}, 2M tokens",
    ),
    Question(
        "Does beta2 per step, not per token, hurt a small batch?",
        "beta2 per step in place of a half-life makes the smallest batch worse beside a larger one",
        "",
        f"{NANO}, 0.5M tokens",
    ),
    Question(
        "Does a growing batch win at constant rate?", GROWS, "constant rate$", f"{NANO}, 1M tokens"
    ),
    Question("Does it with averaged weights?", GROWS, "averaged weights$", f"{NANO}, 1M tokens"),
    Question("Does it after a decay to zero?", GROWS, "decayed$", f"{NANO}, 1M tokens"),
    Question(
        "Does following B_opt along the loss win?",
        "Following B_opt ends lower than the best constant batch",
        "^B_opt",
        f"{NANO}, 1M tokens",
    ),
    Question(
        "If the batch grows, is later better?",
        "A late switch ends lower than an earlier one",
        "rate$|weights$|decayed$|cosine$",
        f"{NANO}, 1M tokens",
    ),
    Question(
        "Is the rate best kept where the batch grows, not raised by the square root?",
        "Where the batch changes, keeping the rate ends lower than × sqrt",
        "",
        f"{NANO}, 1M tokens",
    ),
    Question(
        "Does the best batch grow with the data?",
        "The best batch grows with data at a fixed model",
        "",
        PUBLISHED,
    ),
    Question(
        "Does the critical batch grow with model and data?",
        "The critical batch grows with model and data together",
        "",
        "7k to 62k parameters; 85M to 1.2B, published",
    ),
    Question(
        "Is the gradient noise scale that critical batch, within × 1.5?",
        "The gradient noise scale is b/a of S = a + b/B, within × 1.5",
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
        found = [
            one
            for one in claims
            if one.statement == statement and re.search(conditions, one.condition)
        ]
        if not found:
            raise ValueError(f"{text}: no claim {statement!r} under {conditions!r}")
        verdicts, effect = summary(found)
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
