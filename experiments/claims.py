"""Every claim, judged from the committed tables: results/claims.json and results/CLAIMS.md.

    python -m experiments.claims

What an experiment claims is in its claims.py: `claims(results)`, from its results directory.
"""

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bss.contests.claims import Claim, Question, check_once, markdown, summary
from bss.contests.contest import Contest
from bss.files import write_json, write_text
from bss.tables import write_table
from bss.values import to_dict
from experiments.critical_batch import best_batch, noise, statements
from experiments.es_wsd import claims as es_wsd
from experiments.late_switch import claims as late_switch
from experiments.pages import cheapest, papers_page, undecided
from experiments.second_moment import claims as second_moment
from experiments.second_moment import growing
from experiments.study import say
from experiments.tables import Tables

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
    "momentum",
    "ladder",
)
HEAD = """# Claims, and what was measured of them

Written by `python -m experiments.claims` from the tables of this directory; with p values, the
smallest effect that would have been seen, and notes: [claims.json](claims.json). A verdict needs
two tests, each after Holm within its table and ending at 95%: the effect's own Student t over
paired seeds, and t with the scatter pooled over all that scatter alike. Decided ones come with the
effect and its adjusted 95% interval.
"""


RULE_OF_FIRST = """All twelve stand by the two tests above, as they did when they were written. Runs
that are trained from now on are judged by one, Student's t with the variance of a paired difference
shrunk towards that of its table (`bss.contests.moderated`), registered before the seeds.
"""
UNDECIDED = """Each statement once; every condition with its power, tokens and one command is in
[undecided.csv](undecided.csv), and what the papers' figures came to in [PAPERS.md](PAPERS.md).
"""


class First(NamedTuple):
    """What a practitioner would ask: which claim answers it, where, and the size of the models."""

    text: str
    asked: Question
    conditions: str
    size: str


NANO = "99k parameters"
HALF, WHOLE = f"{NANO}, 0.5M tokens", f"{NANO}, 1M tokens"
PUBLISHED = "215M to 1.07B parameters, published"
ENDING = "rate$|weights$|decayed$|cosine$"
ASKED = (
    First(
        "Is batch 1 too small, at beta2 .95 per step and a tuned rate?",
        second_moment.INSIDE,
        "^0.95 per step, batch 1, (?!16|64)",
        HALF,
    ),
    First(
        "Is it, at one rate for all batches?",
        second_moment.INSIDE,
        "^0.95 per step, batch 1, 64-token",
        f"{NANO}, 2M tokens",
    ),
    First("Does beta2 per step, not per token, hurt a small batch?", second_moment.MOVES, "", HALF),
    First("Does a growing batch win at constant rate?", growing.GROWS, "constant rate$", WHOLE),
    First("Does it with averaged weights?", growing.GROWS, "averaged weights$", WHOLE),
    First("Does it after a decay to zero?", growing.GROWS, "decayed$", WHOLE),
    First("Does following B_opt along the loss win?", es_wsd.FOLLOWS, "^B_opt", WHOLE),
    First("If the batch grows, is later better?", late_switch.EARLIER, ENDING, WHOLE),
    First(
        "Is the rate best kept where the batch grows, not raised by the square root?",
        es_wsd.KEPT,
        "",
        WHOLE,
    ),
    First("Does the best batch grow with the data?", best_batch.BEST_DATA, "", PUBLISHED),
    First(
        "Does the critical batch grow with model and data?",
        statements.GROWS,
        "",
        "7k to 62k parameters; 85M to 1.2B, published",
    ),
    First(
        "Is the gradient noise scale that critical batch, within × 1.5?",
        noise.IS_BEND,
        "",
        "7k to 62k parameters",
    ),
)

ADVISED = {
    "wsd": (
        "WSD, the rate decayed to zero",
        *("decay", "law, for WSD", "asked for WSD, decayed", "late 4 → 32, decayed"),
    ),
    "cosine": (
        *("cosine", "cosine", "law, for cosine", "asked for cosine, cosine"),
        "4 → 32 at 70%, cosine",
    ),
    "average": (
        "weights averaged at a constant rate",
        *("averaged", "law", "asked for constant rate, averaged weights"),
        "late 4 → 32, averaged weights",
    ),
    "constant": (
        "a constant rate to the end",
        *("constant", "law", "asked for constant rate, constant rate"),
        "late 4 → 32, constant rate",
    ),
}
"""By ending: its words and name, the law's schedule, the claim of it, that of the late switch."""


def collect(results: Path) -> list[Claim]:
    """The claims of every experiment, from the tables in its directory under `results`."""
    modules = {name: importlib.import_module(f"experiments.{name}.claims") for name in EXPERIMENTS}
    claims = [one for name, module in modules.items() for one in module.claims(results / name)]
    check_once(claims)
    return claims


def answers(claims: Sequence[Claim]) -> str:
    """What practitioners ask, as a Markdown table: verdicts, effects, and of which models.

    Raises:
        ValueError: no claim answers a question.
    """
    rows = [
        "| question | verdict, of how many | effect, 95% interval: lowest, highest | of | rule |",
        "|---|---|---|---|---|",
    ]
    for text, asked, conditions, size in ASKED:
        matching = [
            one
            for one in claims
            if one.statement == asked.statement and re.search(conditions, one.condition)
        ]
        if not matching:
            raise ValueError(f"{text}: no claim {asked.statement!r} under {conditions!r}")
        verdicts, effect = summary(matching)
        rule = "two tests" if all(one.effect.pooled_p is not None for one in matching) else "one"
        rows.append(f"| {text} | {verdicts} | {effect} | {size} | {rule} |")
    return "\n".join(rows)


def advised(claims: Sequence[Claim], late_switch_runs: Contest) -> dict[str, Any]:
    """What `bss.advice.growth` is told, by ending: bss/advice/growth.json.

    Raises:
        KeyError: a claim that it stands on is not there.
    """
    found = {(one.statement, one.condition): one for one in claims}

    def gap(question: Question, condition: str) -> dict[str, Any]:
        one = found[question.statement, condition]
        told = round(float(f"{one.effect.estimate:.3g}"), 6)
        return {"condition": condition, "verdict": one.verdict, "effect": told}

    entries = {}
    for name, (words, ending, law, best, late) in ADVISED.items():
        steps = {name: row["steps"] for name, row in late_switch_runs.of(ending).items()}
        share = steps[law] / steps[str(late_switch_runs.best_constant(ending))]
        entries[name] = {
            "words": words,
            "best": gap(late_switch.LAW_WINS, best),
            "steps": round(share, 2),
            "late": gap(es_wsd.SWITCHES, late),
        }
    return entries


def page(claims: Sequence[Claim]) -> str:
    """What practitioners ask, then every claim with its conditions: results/CLAIMS.md."""
    first = f"{HEAD}\n## Asked first\n\n{answers(claims)}\n\n{RULE_OF_FIRST}"
    least = f"## Undecided, and cheapest to decide\n\n{UNDECIDED}\n{cheapest(undecided(claims))}"
    return f"{first}\n{least}\n\n## All\n\n{markdown(claims)}\n"


def main(root: Path = Path()) -> None:
    """Writes results/claims.json and results/CLAIMS.md."""
    claims = collect(root / "results")
    write_json(root / "results" / "claims.json", {"claims": to_dict(claims)})
    write_text(root / "results" / "CLAIMS.md", page(claims))
    write_text(root / "results" / "PAPERS.md", papers_page(claims))
    write_table(undecided(claims), root / "results" / "undecided.csv")
    contest = Tables(root / "results/late_switch").contest()
    write_json(root / "bss/advice/growth.json", advised(claims, contest))
    counts = {c.verdict: sum(o.verdict == c.verdict for o in claims) for c in claims}
    say(f"{len(claims)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
