"""What stands beside the claims: the papers' figures one by one, and what would decide the rest.

results/PAPERS.md and results/undecided.csv are written by `python -m experiments.claims`.
"""

import math
import shlex
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bss.contests.claims import Claim
from bss.contests.power import deviation_of, power, seeds_for
from experiments.tables import Tables

ROOT = Path(__file__).parents[1]
PAPERS = {
    "1": "Zhou et al., arXiv 2601.05034: E(S) under WSD",
    "2": "Wang et al., arXiv 2602.14208, on Li et al., arXiv 2509.19189: late switching",
    "3": "Zhang et al., arXiv 2410.21676: the critical batch size",
}
HEAD = """# Every figure and claim of the three papers, and what was found here

Written by `python -m experiments.claims` from [claims.json](claims.json) and
[papers.toml](../experiments/papers.toml). A figure has its number where it is known here (of each
paper the first, and not of paper 2); the others are told by what they show. Of how many conditions
each was measured under is counted; "would show" is the smallest effect that the tests would have
shown in 80% of such tables, the least over the undecided conditions. What each undecided one needs:
[undecided.csv](undecided.csv).
"""
SHOWN, MOST_SEEDS = 12, 40
SEEDED = ("contenders.csv", "every_rate.csv", "points.csv", "runs.parquet", "horizons.csv")
"""Tables whose claims are means over seeds; those of other tables are over schedules or points."""


def entries() -> list[dict[str, Any]]:
    """The figures and claims of the papers, of papers.toml."""
    return tomllib.loads((Path(__file__).parent / "papers.toml").read_text())["entry"]


def matching(entry: dict[str, Any], claims: Sequence[Claim]) -> list[Claim]:
    """The claims that stand beside a figure.

    Raises:
        ValueError: a statement of the entry begins none.
    """
    found = []
    for statement in entry.get("statements", ()):
        some = [one for one in claims if one.statement.startswith(statement)]
        if not some:
            raise ValueError(f"papers.toml: no claim begins {statement!r}")
        found += some
    return found


def finding(entry: dict[str, Any], claims: Sequence[Claim]) -> str:
    """What was found: reproduced, contradicted, undecided with its power, or missing and why."""
    some = matching(entry, claims)
    if not some:
        return f"**missing**: {entry['missing']}"
    counts = {v: sum(one.verdict == v for one in some) for v in {one.verdict for one in some}}
    words = {"shown": "reproduced", "opposite shown": "contradicted"}
    if entry.get("opposite"):
        words = {"shown": "contradicted", "opposite shown": "reproduced"}
    of = f" of {len(some)}"
    parts = [f"**{word}** in {counts[v]}{of}" for v, word in words.items() if v in counts]
    if "not shown" in counts:
        parts.append(f"no effect that matters in {counts['not shown']}{of}")
    open_ones = [one for one in some if one.verdict == "undecided"]
    if open_ones:
        told = "undecided" if parts else "**undecided**"
        parts.append(f"{told} in {len(open_ones)}{of}{_least(open_ones)}")
    if not parts:
        return f"**missing**: {some[0].note}"
    if closed := counts.get("not testable here"):
        parts.append(f"not testable in {closed}")
    return "; ".join(parts)


def _least(claims: Sequence[Claim]) -> str:
    """The smallest effect that some undecided claim would have shown."""
    known = [one for one in claims if one.effect.smallest_effect is not None]
    if not known:
        return ""
    best = min(known, key=lambda one: one.effect.smallest_effect or math.inf)
    return f" (would show {best.effect.smallest_effect:.2g} {best.question.unit})"


def papers_page(claims: Sequence[Claim]) -> str:
    """Every figure and claim of the papers with what was found of it: results/PAPERS.md."""
    parts = [HEAD]
    for key, title in PAPERS.items():
        rows = [
            f"## {title}\n",
            "| figure or claim | found | at | beside it |",
            "|---|---|---|---|",
        ]
        for entry in (entry for entry in entries() if entry["paper"] == key):
            beside = []
            if figure := entry.get("figure"):
                beside.append(f"[figure]({figure.removeprefix('results/')})")
            if place := entry.get("notebook"):
                name = place.split(",")[0]
                beside.append(f"[{place}](../notebooks/{name}.ipynb)")
            found, size = finding(entry, claims), entry.get("size", "–")
            what = f"{entry['label']}: {entry['text']}"
            rows.append(f"| {what} | {found} | {size} | {', '.join(beside) or '–'} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


class Cost(NamedTuple):
    """Of an experiment, a seed: tokens and minutes; its command without seeds.

    And the first seed that was not trained, and how many choose rates before any is judged.
    """

    tokens: float
    minutes: float
    command: list[str]
    first: int
    choosing: int


@cache
def _cost(folder: Path) -> Cost | None:
    """What a seed of an experiment costs; None where its record does not tell."""
    if "experiment.json" not in Tables(folder):
        return None
    record = Tables(folder).json("experiment.json")
    config = record["config"]
    seeds = config.get("seeds")
    if not seeds or not record.get("training_seconds"):
        return None
    left_out = ("--config.seeds=", "--config.results=")
    command = [part for part in record["command"].split() if not part.startswith(left_out)]
    minutes, tokens = record["training_seconds"] / 60 / len(seeds), record["trained_tokens"]
    return Cost(tokens / len(seeds), minutes, command, max(seeds) + 1, config.get("choosing", 0))


def undecided(claims: Sequence[Claim]) -> pd.DataFrame:
    """Every undecided claim, and of means over seeds what would decide it, cheapest first.

    A difference is decided by the seeds that show the effect that was found, or what matters where
    that is more, in 80% of studies by one t test. They are seeds that were not trained
    yet, and cost as many of the whole experiment, which is what the command trains.

    Returns:
        statement, condition, table, effect, unit, would_show (the smallest effect that the tests
        would have shown), n (seeds, where more of them would decide it); then, else empty: power
        (of the effect or of what matters, at these seeds), seeds_needed (empty beyond 10,000),
        tokens, minutes, command (empty beyond MOST_SEEDS seeds).
    """
    rows = [
        {
            "statement": one.statement,
            "condition": one.condition,
            "table": one.table,
            "effect": one.effect.estimate,
            "unit": one.question.unit,
            "would_show": one.effect.smallest_effect,
            "n": one.effect.n,
            **_price(one),
        }
        for one in claims
        if one.verdict == "undecided"
    ]
    table = pd.DataFrame(rows).sort_values("minutes", kind="stable", ignore_index=True)
    return table.astype({"seeds_needed": "Int64"})


def _price(one: Claim) -> dict[str, Any]:
    """What would decide a claim that is a mean over seeds."""
    cost, deviation = _cost((ROOT / one.table).parent), deviation_of(one)
    if cost is None or deviation is None or Path(one.table).name not in SEEDED:
        return {"power": None, "seeds_needed": None, "minutes": None, "command": ""}
    aim = max(abs(one.effect.estimate), one.question.matters)
    needed = seeds_for(aim, deviation)
    count = needed + cost.choosing if needed else math.nan
    fresh = range(cost.first, cost.first + (needed or 0) + cost.choosing)
    seeds = f"--config.seeds=({','.join(map(str, fresh))})"
    return {
        "power": power(aim, deviation, one.effect.n),
        "seeds_needed": needed,
        "tokens": round(count * cost.tokens, -3),
        "minutes": round(count * cost.minutes, 2),
        "command": shlex.join([*cost.command, seeds]) if count <= MOST_SEEDS else "",
    }


def cheapest(table: pd.DataFrame) -> str:
    """The undecided claims that cost least to decide, each statement once, as Markdown."""
    rows = ["| undecided | would show | seeds, needed | minutes |", "|---|---|---|---|"]
    known = table.dropna(subset="minutes")
    for row in known.drop_duplicates("statement").head(SHOWN).to_dict("records"):
        needed = f"{row['n']}, {row['seeds_needed']}"
        least = f"{row['would_show']:.2g} {row['unit']}"
        what = f"{row['statement']}: {row['condition']}"
        rows.append(f"| {what} | {least} | {needed} | {row['minutes']:.1f} |")
    return "\n".join(rows)
