"""results/FINDINGS.md and results/PAPERS.md from findings.csv of all experiments.

    python -m experiments.summary

In findings.csv, a question that was measured under several conditions has one row for each. The
file experiments/papers.toml lists the questions that test each figure of a paper, and their
conditions.
"""

import tomllib
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
    own = {(claim["paper"], key) for claim in claims for key in claim.get("questions", ())}
    lines = [_header("findings")]
    for (paper, key), rows in found.groupby(["paper", "key"], sort=False):  # type: ignore[misc]
        hidden = (rows["answer"] == "not tested") | (rows["source"] == ARCHIVED)
        if (str(paper), key) not in own or hidden.all():
            continue
        first = rows.iloc[0]
        cells = [str(paper), first["question"], answer(rows), effect(rows), span(rows["n"])]
        lines.append(f"| {' | '.join([*cells, conditions(rows)])} |")
    return "\n".join([*lines, "", *(f"- {number}: {name}" for number, name in papers.items()), ""])


def papers_page(found: pd.DataFrame, claims: Sequence[dict], papers: dict[str, str]) -> str:
    """Return a table for each paper: figure or claim, its own conditions, other ones."""
    lines = [_header("figures")]
    for number, name in papers.items():
        lines += ["", f"## {name}, arXiv {number}", ""]
        lines += ["| figure | claim | under the paper's conditions | under others | see |"]
        lines += ["|---|---|---|---|---|"]
        of_paper = found.loc[found["paper"].astype(str) == number]
        for claim in (c for c in claims if c["paper"] == number):
            own, others = (
                of_keys(of_paper, claim.get(field, ())) for field in ("questions", "others")
            )
            if "tests" in claim:
                names = sorted({test.partition("::")[0] for test in claim["tests"]})
                own = "**holds** within the tolerances of " + " and ".join(
                    f"[{name.rpartition('/')[2]}](../{name})" for name in names
                )
            own = own or f"**missing**: {claim.get('missing', 'its runs are not trained')}"
            book = claim.get("notebook")
            see = f"[{book}](../notebooks/{book}.ipynb)" if book else "–"
            lines.append(
                f"| {claim['figure']} | {claim['text']} | {own} | {others or '–'} | {see} |"
            )
    return "\n".join([*lines, ""])


def _header(page: str) -> str:
    return tomllib.loads(PAPERS.read_text(encoding="utf-8"))["header"][page].rstrip("\n")


def of_keys(found: pd.DataFrame, keys: Sequence[str]) -> str:
    """Return the answers of some questions in a cell; "" if none was tested."""
    parts = []
    for key in keys:
        rows = found.loc[(found["key"] == key) & (found["answer"] != "not tested")]
        if len(rows):
            known = effect(rows) if len(rows) == 1 else ""
            name = key.removesuffix(OTHER).replace("_", " ")
            text = answer(rows) + f": {known}" * bool(known)
            parts.append(f"{name}: {text}" if len(keys) > 1 else text)
    return "<br>".join(parts)


def answer(rows: pd.DataFrame) -> str:
    """Return the answer of a question, or how often each was found over its conditions."""
    tested = rows.loc[rows["answer"] != "not tested"]
    counts = tested["answer"].value_counts()
    parts = [f"**{name}**" for name in counts.index]
    if len(tested) > 1:
        parts = [f"{part} in {n} of {len(tested)}" for part, n in zip(parts, counts, strict=True)]
    if len(tested) == 1 and counts.index[0] == "inconclusive":
        parts = [f"{parts[0]}, ± {tested['detectable'].iloc[0]:.2g}"]
    return ", ".join(parts) + f" ({ARCHIVED})" * (rows["source"].iloc[0] == ARCHIVED)


def effect(rows: pd.DataFrame) -> str:
    """Return the effect with its interval and unit; the range of effects over conditions."""
    known = rows.dropna(subset=["effect"])
    if known.empty:
        return "–"
    unit = known["unit"].iloc[0]
    if len(known) > 1:
        return f"{_signed(known['effect'].min())} to {_signed(known['effect'].max())} {unit}"
    one = known.iloc[0]
    ends = f" ({_signed(one['low'])} to {_signed(one['high'])})" * bool(pd.notna(one["low"]))
    return f"{_signed(one['effect'])}{ends} {unit}"


def conditions(rows: pd.DataFrame) -> str:
    """Return the conditions of a question, or how many there are."""
    return str(rows["conditions"].iloc[0]) if len(rows) == 1 else f"{len(rows)} conditions"


def span(numbers: pd.Series) -> str:
    """Return a number, or the smallest and the largest."""
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def main() -> None:
    """Write both pages."""
    entries, found = tomllib.loads(PAPERS.read_text(encoding="utf-8")), read_findings()
    for name, page in (("FINDINGS.md", findings_page), ("PAPERS.md", papers_page)):
        text = page(found, entries["claim"], entries["papers"])
        (RESULTS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
