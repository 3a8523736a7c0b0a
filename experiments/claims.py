"""Every claim, judged from the committed tables: results/claims.json, CLAIMS.md and the README.

    python -m experiments.claims

What an experiment claims is in its claims.py: `claims(results)`, from its results directory.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from bss.files import write_json, write_text
from bss.points.claims import Claim, counted, markdown
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
BEGIN = "<!-- claims: written by python -m experiments.claims -->"
END = "<!-- end of claims -->"


def collect(results: Path) -> list[Claim]:
    """The claims of every experiment, from the tables in its directory under `results`."""
    return [
        claim
        for name in EXPERIMENTS
        for claim in importlib.import_module(f"experiments.{name}.claims").claims(results / name)
    ]


def page(claims: Sequence[Claim]) -> str:
    """Every claim with its conditions, as Markdown: results/CLAIMS.md."""
    return f"{HEAD}\n{markdown(claims)}\n"


def inserted(text: str, claims: Sequence[Claim]) -> str:
    """The README with what the papers claim between its two marks: the verdicts, counted.

    Raises:
        ValueError: the page lacks a mark.
    """
    papers = [one for one in claims if one.source != "derived"]
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{counted(papers)}\n\n{END}{rest.split(END)[1]}"


def main(root: Path = Path()) -> None:
    """Writes results/claims.json, results/CLAIMS.md and the table in README.md."""
    claims = collect(root / "results")
    write_json(root / "results" / "claims.json", {"claims": to_dict(claims)})
    write_text(root / "results" / "CLAIMS.md", page(claims))
    readme = root / "README.md"
    write_text(readme, inserted(readme.read_text(encoding="utf-8"), claims))
    counts = {c.verdict: sum(o.verdict == c.verdict for o in claims) for c in claims}
    say(f"{len(claims)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
