"""Answers to preregistered questions: one row per question in findings.csv.

`bss.stats.answers` decides all questions of a paper. A question's statement has fields for the
conditions, which are filled in from the rows that were measured.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.stats import Answer, Claim, Effect, Numbers, answers, effect_of
from bss.tables import write_table
from experiments.conditions import Conditions
from experiments.tables import Tables

COLUMNS = [
    *("question", "answer", "bound", "effect", "low", "high", "level", "unit", "n", "test"),
    *("family", "censored", "margin", "asked_before", "conditions", "table", "command", "paper"),
    *("figure", "key", "p", "detectable", "seeds_needed"),
]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A statement and the number per seed that decides it.

    Attributes:
        key: Short name.
        part: Folder of its tables.
        figure: Figure of the paper.
        statement: What is claimed; fields of `Conditions` in braces.
        number: What is computed per seed, in words.
        sign: Sign of the effect that the statement claims; 0 if it claims a difference.
        margin: Largest effect, in `unit`, that is not relevant.
        unit: Unit of the effect.
        seeds: Planned number of seeds.
        decided: How it is decided, if not by the rules of its file.
        equal: Whether the statement claims an effect within the margin.
        or_equal: Whether an effect within the margin supports the statement, too.
        adjusted: Whether it belongs to the family of Holm of its file; else it is tested alone.
        asked_before: What was answered before, on other seeds.
        registered: True if it was preregistered; else the runs were trained before the question.
        paper: arXiv number of its paper, if its file has several.
    """

    key: str
    part: str
    figure: str
    statement: str
    number: str
    sign: int
    margin: float
    unit: str
    seeds: int
    decided: str = ""
    equal: bool = False
    or_equal: bool = False
    adjusted: bool = True
    asked_before: str = ""
    registered: bool = True
    paper: str = ""

    @property
    def claim(self) -> Claim:
        """The claim of the statement, for `bss.stats.answers`."""
        return Claim(
            sign=self.sign,
            margin=self.margin,
            equal=self.equal,
            or_equal=self.or_equal,
            asked_before=self.asked_before,
        )


@dataclass(frozen=True)
class Measured:
    """The effect that answers a question, the conditions of its runs, and the table it is from."""

    effect: Effect
    conditions: Conditions
    table: str


def measurements(
    numbers: Mapping[str, Numbers | ArrayLike], conditions: Conditions, table: str
) -> dict[str, Measured]:
    """Return numbers [seed] by key, measured under the same conditions, in one table."""
    return {key: Measured(effect_of(x), conditions, table) for key, x in numbers.items()}


def read_questions(file: Path) -> list[Question]:
    """Return the questions of a TOML file.

    Raises:
        InputError: If a question has an unknown field or a key occurs twice.
    """
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["question"]
    known = {one.name for one in fields(Question)}
    for entry in entries:
        if unknown := entry.keys() - known:
            raise InputError(f"{file}: {entry['key']} has {unknown}; expected {sorted(known)}")
    if len({entry["key"] for entry in entries}) < len(entries):
        raise InputError(f"{file}: a key occurs twice; give each question its own")
    return [Question(**entry) for entry in entries]


def findings(
    questions: Sequence[Question], measured: Mapping[str, Measured], **paper: str
) -> pd.DataFrame:
    """Return one row per question, with the columns COLUMNS.

    Args:
        questions: Questions whose p values are adjusted together, as far as they are `adjusted`.
        measured: By key; a question without an entry is "not tested".
        paper: The columns `paper` and `command`.
    """
    effects = {key: one.effect for key, one in measured.items()}
    found = answers({one.key: one.claim for one in questions if one.adjusted}, effects)
    for alone in (one for one in questions if not one.adjusted):
        found |= answers({alone.key: alone.claim}, effects)
    rows = []
    for question in questions:
        row = {"unit": question.unit, "key": question.key, "figure": question.figure, **paper}
        if question.key in found:
            row |= _row(question, found[question.key], measured[question.key])
        else:
            row |= {"question": question.statement, "answer": "not tested", "n": 0}
        rows.append(row)
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def _row(question: Question, answer: Answer, one: Measured) -> dict[str, Any]:
    effect = answer.effect
    return {
        "question": one.conditions.fill(question.statement),
        "answer": answer.word,
        "bound": effect.bound,
        "effect": effect.value,
        "low": answer.low,
        "high": answer.high,
        "level": answer.level,
        "n": effect.seeds,
        "test": effect.test,
        "family": answer.family,
        "censored": effect.censored,
        "margin": question.margin,
        "asked_before": question.asked_before or ("" if question.registered else "not registered"),
        "conditions": str(one.conditions),
        "table": one.table,
        "p": answer.p,
        "detectable": answer.detectable,
        "seeds_needed": answer.seeds_needed,
    }


def write_findings(
    tables: Tables,
    files: Mapping[Path, Mapping[str, Callable[[], Mapping[str, Measured]]]],
    **paper: Any,
) -> None:
    """Write findings.csv of a results directory.

    Args:
        tables: The results directory.
        files: TOML files of questions, each a family of Holm; by folder, the numbers of a part.
            A part without finals.csv was not trained.
        paper: Further arguments of `findings`.
    """
    answered = []
    for questions, parts in files.items():
        found: dict[str, Measured] = {}
        for part, numbers in parts.items():
            if f"{part}/finals.csv" in tables:
                found |= numbers()
        answered.append(findings(read_questions(questions), found, **paper))
    write_table(pd.concat(answered, ignore_index=True), tables.folder / "findings.csv")
