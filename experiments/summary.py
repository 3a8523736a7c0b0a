"""results/FINDINGS.md and results/PAPERS.md from findings.csv of all experiments.

    python -m experiments.summary

In findings.csv, a question that was measured under several conditions has one row for each. The
file experiments/papers.toml lists the questions that test each figure of a paper, and their
conditions.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

RESULTS = Path("results")
PAPERS = Path(__file__).parent / "papers.toml"
ARCHIVED = "archived"
OTHER = "_other"  # end of the keys of archived questions under other conditions than the paper's


def read_findings(results: Path = RESULTS) -> pd.DataFrame:
    """Return the rows of every findings.csv, with `source`: an experiment or ARCHIVED.

    Archived answers to a question that an experiment has answered since are left out.
    """
    tables = []
    for file in sorted(results.glob("*/findings.csv")):
        source = ARCHIVED if file.parent.name == "archive" else file.parent.name
        tables.append(pd.read_csv(file).assign(source=source))
    table = pd.concat(tables, ignore_index=True)
    question = pd.MultiIndex.from_frame(table[["paper", "key"]].astype(str))
    archived = table["source"] == ARCHIVED
    again = question[~archived & (table["answer"] != "not tested")]
    return table.loc[~(archived & question.isin(again))].reset_index(drop=True)


def findings_page(found: pd.DataFrame, claims: Sequence[dict], papers: dict[str, str]) -> str:
    """Return one table of the questions tested under a paper's own conditions."""
    own = {
        (claim["paper"], key)
        for claim in claims
        for field in ("questions", "narrower")
        for key in claim.get(field, ())
    }
    lines = [_header("findings"), ""]
    lines += ["| paper | tests and their units | family of Holm |", "|---|---|---|"]
    lines += [f"| {number} | {tests_of(found, number)} |" for number in papers]
    lines += ["", "| paper | question | answer | effect, 95% CI | n | asked before | measured at |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for (paper, key), rows in found.groupby(["paper", "key"], sort=False):  # type: ignore[misc]
        hidden = (rows["answer"] == "not tested") | (rows["source"] == ARCHIVED)
        if (str(paper), key) not in own or hidden.all():
            continue
        first = rows.iloc[0]
        cells = [str(paper), first["question"], answer(rows), effect(rows), span(rows["n"])]
        before = first["asked_before"] if isinstance(first["asked_before"], str) else "–"
        lines.append(f"| {' | '.join([*cells, before, conditions(rows)])} |")
    return "\n".join([*lines, "", *(f"- {number}: {name}" for number, name in papers.items()), ""])


def tests_of(found: pd.DataFrame, paper: str) -> str:
    """Return the kinds of tests of a paper with counts, and the size of each family of Holm."""
    rows = found.loc[(found["paper"].astype(str) == paper) & (found["source"] != ARCHIVED)]
    rows = rows.loc[rows["answer"] != "not tested"]
    kinds = rows["test"].replace(r", \d+ trimmed.*", ", trimmed", regex=True)
    kinds = kinds.replace("none: bounds", "no test, only bounds")
    counts = sorted(Counter(kinds).items(), key=lambda pair: -pair[1])  # equal ones as they come
    texts = [f"{name}: {count}" for name, count in counts]
    families = sorted({int(size) for size in rows["family"] if size > 1}, reverse=True)
    return f"{'; '.join(texts)} | {' and '.join(map(str, families))} tests"


def papers_page(found: pd.DataFrame, claims: Sequence[dict], papers: dict[str, str]) -> str:
    """Return a table for each paper: figure or claim, its own conditions, other ones."""
    lines = [_header("figures")]
    for number, name in papers.items():
        lines += ["", f"## {name}, arXiv {number}", ""]
        lines += ["| figure | claim | from | under the paper's conditions | under others | see |"]
        lines += ["|---|---|---|---|---|---|"]
        of_paper = found.loc[found["paper"].astype(str) == number]
        for claim in (c for c in claims if c["paper"] == number):
            own = _own(of_paper, claim)
            others = of_keys(of_paper, claim.get("others", ()), named=True) or "–"
            book = claim.get("notebook")
            see = f"[{book}](../notebooks/{book}.ipynb)" if book else "–"
            cells = [claim["figure"], claim["text"], claim["from"], own, others, see]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _own(found: pd.DataFrame, claim: dict) -> str:
    """Return the answers to a claim, the tests of exact theory, or why it is not tested."""
    if "tests" in claim:
        names = sorted({test.partition("::")[0] for test in claim["tests"]})
        links = [f"[{name.rpartition('/')[2]}](../{name})" for name in names]
        return "**holds** within the tolerances of " + " and ".join(links)
    if answers := of_keys(found, claim.get("questions", ())):
        return answers
    missing = f"**missing**: {claim.get('missing', 'its runs are not trained')}"
    narrower = of_keys(found, claim.get("narrower", ()), named=True)
    return f"{missing}<br>narrower: {narrower}" if narrower else missing


def _header(page: str) -> str:
    return tomllib.loads(PAPERS.read_text(encoding="utf-8"))["header"][page].rstrip("\n")


def of_keys(found: pd.DataFrame, keys: Sequence[str], *, named: bool = False) -> str:
    """Return the answers of some questions in a cell; "" if none was tested.

    Args:
        found: Findings of a paper.
        keys: Keys of questions.
        named: Whether one answer is preceded by its statement, too.
    """
    parts = []
    for key in keys:
        rows = found.loc[(found["key"] == key) & (found["answer"] != "not tested")]
        if len(rows):
            known = effect(rows) if len(rows) == 1 else ""
            text = answer(rows) + f": {known}" * bool(known)
            asked = str(rows["question"].iloc[0]).rstrip(".")
            parts.append(f"{asked}: {text}" if named or len(keys) > 1 else text)
    return "<br>".join(parts)


def answer(rows: pd.DataFrame) -> str:
    """Return the answer of a question, or how often each was found over its conditions."""
    tested = rows.loc[rows["answer"] != "not tested"]
    counts = tested["answer"].value_counts()
    parts = [f"**{name}**" for name in counts.index]
    if len(tested) > 1:
        parts = [f"{part} in {n} of {len(tested)}" for part, n in zip(parts, counts, strict=True)]
    one = tested.iloc[0]
    if len(tested) == 1 and one["answer"] == "inconclusive" and pd.notna(one["detectable"]):
        parts = [f"{parts[0]}, detects {_size(one['detectable'], one['unit'])}"]
    return ", ".join(parts) + f" ({ARCHIVED})" * (rows["source"].iloc[0] == ARCHIVED)


def effect(rows: pd.DataFrame) -> str:
    """Return the effect with its interval and unit; the range of effects over conditions."""
    known = rows.dropna(subset=["effect"])
    if known.empty:
        return "–"
    unit = known["unit"].iloc[0]
    if len(known) > 1:
        ends = [_quantity(known["effect"].agg(end), unit) for end in ("min", "max")]
        return f"{'–'.join(ends)} {_unit(unit)}"
    one = known.iloc[0]
    ends = ""
    if pd.notna(one["low"]):
        ends = f" [{_quantity(one['low'], unit)}, {_quantity(one['high'], unit)}]"
    bound = f"{one['bound']} " if isinstance(one.get("bound"), str) and one["bound"] else ""
    before = "exponent " if unit.startswith("exponent") else ""
    return f"{before}{bound}{_quantity(one['effect'], unit)}{ends} {_unit(unit)}".rstrip()


RATIOS = {
    "log tokens": "times the tokens",
    "log steps": "times the steps",
    "log seconds": "times the time",
    "log batch": "times the critical batch size",
    "doublings": "times the batch size",
}
"""Units of logarithms, with the ratio that they mean."""
OFFSET = re.compile(r"exponent minus ([\d.]+)")
SHARE = re.compile(r"log of ([\d.]+)% of the tokens")


def _quantity(value: float, unit: str) -> str:
    """Return a value as a number that a reader knows: a ratio for a log, a share in percent."""
    if unit in RATIOS:
        return f"{2**value if unit == 'doublings' else math.exp(value):.3g}"
    if share := SHARE.fullmatch(unit):
        return f"{float(share[1]) * math.exp(value):.3g}%"
    if unit == "of the gap":
        return f"{100 * value:.0f}%"
    if unit.startswith("exponent"):
        offset = OFFSET.fullmatch(unit)
        return f"{value + float(offset[1] if offset else 0):.2f}".replace("-", "−")
    return _signed(value)


def _unit(unit: str) -> str:
    if unit.startswith("exponent"):
        return ""
    return "of the tokens" if SHARE.fullmatch(unit) else RATIOS.get(unit, unit)


def _size(value: float, unit: str) -> str:
    """Return a detectable effect in the unit of its question."""
    if unit in RATIOS or SHARE.fullmatch(unit):
        return f"a factor of {2**value if unit == 'doublings' else math.exp(value):.2g}"
    return f"{value:.2g}"


def conditions(rows: pd.DataFrame) -> str:
    """Return the conditions of a question, or how many there are."""
    return str(rows["conditions"].iloc[0]) if len(rows) == 1 else f"{len(rows)} conditions"


def span(numbers: pd.Series) -> str:
    """Return a number, or the smallest and the largest."""
    low = int(numbers.min())
    high = int(numbers.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def main() -> None:
    """Write both pages."""
    entries = tomllib.loads(PAPERS.read_text(encoding="utf-8"))
    found = read_findings()
    for name, page in (("FINDINGS.md", findings_page), ("PAPERS.md", papers_page)):
        text = page(found, entries["claim"], entries["papers"])
        (RESULTS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
