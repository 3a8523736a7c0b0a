"""Answers to preregistered questions: one row per question in findings.csv.

Tests are paired t tests at 95%, adjusted by Holm over all questions of a paper. Equivalence is two
one-sided 5% tests against the margin, i.e. the 90% interval lies inside it.
"""

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student

from bss.errors import InputError
from bss.stats import LEVEL, holm, minimum_detectable_effect, paired
from bss.tables import write_table
from experiments.tables import Tables

M = TypeVar("M")
COLUMNS = [
    *("question", "answer", "effect", "low", "high", "level", "unit", "n", "conditions", "table"),
    *("command", "paper", "figure", "key", "p", "detectable", "seeds_needed"),
]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A statement and the number per seed that decides it.

    Attributes:
        key: Short name.
        part: Folder of its tables.
        figure: Figure of the paper.
        statement: What is claimed.
        number: What is computed per seed, in words.
        sign: Sign of the effect that the statement claims; 0 if it claims a difference.
        margin: Largest effect, in `unit`, that is not relevant.
        unit: Unit of the effect.
        seeds: Planned number of seeds.
        decided: How it is decided, if not by the test of the module.
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


@dataclass(frozen=True)
class Measured:
    """The numbers of a question, one per seed, and what they were measured on.

    `answer` is set for questions that are not decided by a test.
    """

    numbers: np.ndarray
    conditions: str
    table: str
    answer: str = ""


def measurements(
    numbers: Mapping[str, ArrayLike], conditions: str, table: str
) -> dict[str, Measured]:
    """Return numbers by key, measured under the same conditions, in one table."""
    return {key: Measured(np.asarray(x, float), conditions, table) for key, x in numbers.items()}


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
    questions: list[Question],
    measured: Mapping[str, Measured],
    *,
    paper: str,
    command: str,
    equivalence: tuple[str, ...] = (),
) -> pd.DataFrame:
    """Return one row per question, with the columns COLUMNS.

    Args:
        questions: All questions of a paper.
        measured: By key; a question without numbers is "not tested".
        paper: arXiv number.
        command: Command that writes the tables.
        equivalence: Keys of questions that claim an effect within the margin.
    """
    tested = [q.key for q in questions if q.key in measured and not measured[q.key].answer]
    p = {key: paired(measured[key].numbers).p for key in tested}
    known = [key for key in tested if p[key] is not None]
    adjusted = dict(zip(known, holm([float(p[key] or 0) for key in known]), strict=True))

    def answered(question: Question, one: Measured) -> dict[str, Any]:
        decide = _equivalence if question.key in equivalence else _difference
        return _row(question, one, adjusted.get(question.key), decide)

    return answers_table(questions, measured, answered, paper=paper, command=command)


def answers_table(
    questions: Sequence[Question],
    measured: Mapping[str, M],
    answered: Callable[[Question, M], dict[str, Any]],
    **paper: str,
) -> pd.DataFrame:
    """Return one row per question, with the columns COLUMNS.

    Args:
        questions: All questions of a paper.
        measured: By key; a question without an entry is "not tested".
        answered: The columns of an entry.
        paper: The columns `paper` and `command`.
    """
    rows = []
    for question in questions:
        row = {"question": question.statement, "unit": question.unit, "level": LEVEL, **paper}
        row |= {"key": question.key, "figure": question.figure}
        one = measured.get(question.key)
        known = {"answer": "not tested", "n": 0} if one is None else answered(question, one)
        rows.append(row | known)
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def write_findings(
    tables: Tables,
    questions: Path,
    parts: Mapping[str, Callable[[], Mapping[str, Measured]]],
    **paper: Any,
) -> None:
    """Write findings.csv of a results directory.

    Args:
        tables: The results directory.
        questions: TOML file of all questions of a paper.
        parts: By folder, the numbers of a part; one without finals.csv was not trained.
        paper: Further arguments of `findings`.
    """
    found: dict[str, Measured] = {}
    for part, numbers in parts.items():
        if f"{part}/finals.csv" in tables:
            found |= numbers()
    table = findings(read_questions(questions), found, **paper)
    write_table(table, tables.folder / "findings.csv")


def _row(
    question: Question, one: Measured, p: float | None, decide: Callable[..., str]
) -> dict[str, Any]:
    effect = paired(one.numbers)
    values = one.numbers[~np.isnan(one.numbers)]
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    row = {"effect": effect.mean, "low": effect.low, "high": effect.high, "n": effect.n, "p": p}
    row |= {"conditions": one.conditions, "table": one.table}
    row["answer"] = one.answer or decide(question, values, p)
    if spread > 0:
        row["detectable"] = minimum_detectable_effect(spread, effect.n)
        if row["answer"] == "inconclusive":
            row["seeds_needed"] = _seeds_needed(spread, question.margin)
    return row


def _difference(question: Question, values: np.ndarray, p: float | None) -> str:
    """Return the answer for a statement that claims an effect."""
    if p is not None and p < 1 - LEVEL:
        return "supported" if question.sign in (0, np.sign(values.mean())) else "contradicted"
    return "no relevant effect" if within(values, question.margin) else "inconclusive"


def _equivalence(question: Question, values: np.ndarray, p: float | None) -> str:
    """Return the answer for a statement that claims no relevant effect."""
    if within(values, question.margin):
        return "supported"
    return "contradicted" if p is not None and p < 1 - LEVEL else "inconclusive"


def within(values: np.ndarray, margin: float) -> bool:
    """Return whether two one-sided 5% tests place the mean of [seed] within the margin.

    Examples:
        >>> within(np.array([0.001, -0.002, 0.000, 0.001]), 0.005)
        True
    """
    if len(values) < 2:
        return False
    reach = float(student.ppf(LEVEL, len(values) - 1)) * values.std(ddof=1) / len(values) ** 0.5
    return bool(abs(values.mean()) + reach < margin)


def _seeds_needed(spread: float, margin: float) -> float:
    """Return the seeds that detect an effect as large as the margin with power 80%."""
    for seeds in range(3, 500):
        if margin > 0 and minimum_detectable_effect(spread, seeds) <= margin:
            return seeds
    return math.nan
