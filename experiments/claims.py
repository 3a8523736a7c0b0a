"""Every claim, judged from the committed tables, and told in results/claims.json and the README.

    python -m experiments.claims

What an experiment claims is in its claims.py: `claims(results)`, from its results directory.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from bss.files import write_json, write_text
from bss.points.claims import Claim, markdown
from bss.values import to_dict
from experiments.study import say

EXPERIMENTS = (
    "es_wsd",
    "es_ablations",
    "irreducible_loss",
    "late_switch",
    "optimal_schedule",
    "critical_batch",
    "critical_theory",
)
BEGIN = "<!-- claims: written by python -m experiments.claims -->"
END = "<!-- end of claims -->"


def collect(results: Path) -> list[Claim]:
    """The claims of every experiment, from the tables in its directory under `results`."""
    return [
        claim
        for name in EXPERIMENTS
        for claim in importlib.import_module(f"experiments.{name}.claims").claims(results / name)
    ]


def inserted(text: str, claims: Sequence[Claim]) -> str:
    """A page with the table of claims between its two marks.

    Raises:
        ValueError: the page lacks a mark.
    """
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{markdown(claims)}\n\n{END}{rest.split(END)[1]}"


def main(root: Path = Path()) -> None:
    """Writes results/claims.json and the table in README.md."""
    claims = collect(root / "results")
    write_json(root / "results" / "claims.json", {"claims": to_dict(claims)})
    readme = root / "README.md"
    write_text(readme, inserted(readme.read_text(encoding="utf-8"), claims))
    counts = {c.verdict: sum(o.verdict == c.verdict for o in claims) for c in claims}
    say(f"{len(claims)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
