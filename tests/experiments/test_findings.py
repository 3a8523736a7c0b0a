"""Answers of preregistered questions from planted numbers."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.stats import WORDS
from experiments import preregister
from experiments.conditions import Conditions, conditions_of
from experiments.es_wsd.analysis import QUESTIONS
from experiments.findings import Question, findings, measurements, read_questions

NOISE = np.array([0.001, -0.002, 0.0005, 0.002, -0.0015, 0.0, 0.001, -0.001])
HERE = Conditions(
    sizes="27k and 99k parameters", lr="one LR (0.008) for all batch sizes",
    beta2="beta2 0.95 per step", tokens="1M tokens", sequences="16-token sequences",
    phase="at constant LR", seeds="8 seeds",
)  # fmt: skip


def question(key, statement="s", **changes):
    known = {"part": "p", "figure": "f", "number": "n", "sign": -1, "margin": 0.005}
    return Question(
        key=key, statement=statement, unit="nats", seeds=8, **{**known, **changes}
    )  # fmt: skip


def answered(*questions, **numbers):
    table = findings(questions, measurements(numbers, HERE, "t"), paper="p", command="c")
    return table.set_index("key")


def test_answers_follow_sign_margin_and_noise():
    asked = [question(key) for key in ("lower", "higher", "none", "vague")]
    table = answered(
        *asked, question("same", sign=0, equal=True), lower=NOISE - 0.01, higher=NOISE + 0.01,
        none=NOISE, vague=20 * NOISE, same=NOISE,
    )  # fmt: skip
    expected = ["supported", "contradicted", "no relevant effect", "inconclusive", "supported"]
    assert table["answer"].tolist() == expected
    assert table.loc["vague", "detectable"] > 0.005
    assert table.loc["vague", "seeds_needed"] > 8
    assert (table["family"] == 5).all() and (table["n"] == 8).all()


def test_holm_counts_all_questions():
    alone = answered(question("one"), one=NOISE - 0.0016)
    numbers = {"one": NOISE - 0.0016, **{f"q{i}": NOISE for i in range(20)}}
    many = answered(*map(question, numbers), **numbers)
    assert many.loc["one", "p"] == pytest.approx(21 * alone.loc["one", "p"], rel=1e-6)
    wide, narrow = (table.loc["one", "high"] - table.loc["one", "low"] for table in (many, alone))
    assert wide > narrow


def test_a_question_without_runs_is_not_tested():
    table = findings([question("a")], {}, paper="p", command="c")
    assert table["answer"].tolist() == ["not tested"]


def test_a_statement_names_what_its_rows_have():
    asked = question("a", "B_opt rises {phase} with {lr} at {sizes}.", asked_before="inconclusive")
    row = answered(asked, a=NOISE - 0.01).loc["a"]
    told = "B_opt rises at constant LR with one LR (0.008) for all batch sizes at 27k and 99k"
    assert row["question"] == f"{told} parameters."
    assert row["asked_before"] == "inconclusive" and "beta2 0.95 per step" in row["conditions"]
    with pytest.raises(InputError, match="colour"):
        answered(question("a", "{colour}"), a=NOISE)


def test_no_analysis_makes_an_answer_by_itself():
    words = re.compile('"(' + "|".join(set(WORDS) - {"inconclusive", "not tested"}) + ')"')
    for path in Path("experiments").glob("**/*.py"):
        assert not words.search(path.read_text()), path


NAMED = re.compile(
    r"\d[\d.]*k\b|\d+[MB] (?:tokens|param)|8e-3|beta2 0\.95|one LR|for all batch|tuned"
)


@pytest.mark.parametrize("name", ["es_wsd", "late_switch", "critical_batch"])
def test_no_statement_names_a_size_or_a_rule_by_itself(name):
    for one in read_questions(Path(f"experiments/{name}/questions.toml")):
        fixed = re.sub(r"\{\w+\}", "", one.statement)
        untested = one.key == "sizes_signs"  # as registered; two of its three sizes were trained
        assert untested or not NAMED.search(fixed), one.statement


def runs(**changes):
    known = {"run": ["a", "b"], "model": "1x32", "params": 12_416, "seed": [0, 1], "batch": [1, 8]}
    known |= {"peak_lr": 8e-3, "seq_len": 16, "tokens": 1_500_000}
    return pd.DataFrame({**known, **changes})


CONFIG = {"setup": {"optimizer": {"beta2": 0.95, "beta2_half_life": 0}}}


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({}, "lr", "one LR (0.008) for all batch sizes"),
        ({"peak_lr": [4e-3, 8e-3]}, "lr", "the LR tuned for each batch size"),
        ({}, "sizes", "12k parameters"),
        ({"size": ["27k", "99k"], "params": [27_816, 98_688]}, "sizes",
         "27k and 99k parameters"),
        ({"model": "1x32-8e2", "params": 12_672}, "sizes",
         "8 experts, 2 active, 12.7k active parameters"),
        ({}, "beta2", "beta2 0.95 per step"),
        ({"optimizer.beta2": 0.5 ** (np.array([16, 128]) / 20_000)}, "beta2",
         "beta2 with a half-life of 20k tokens"),
        ({}, "tokens", "1.5M tokens"),
    ],
)  # fmt: skip
def test_conditions_are_read_from_the_rows(changes, field, text):
    assert getattr(conditions_of(runs(**changes), CONFIG), field) == text


def test_the_answers_are_those_of_the_committed_tables(tmp_path, monkeypatch):
    """No fit: points, optima and errors of laws are read, and every word is made again."""
    from experiments.es_wsd import analysis

    committed = pd.read_csv(analysis.RESULTS / "findings.csv").set_index("key")
    measured = {**analysis.sizes(), **analysis.experts()}
    for key, one in measured.items():
        assert one.effect.value == pytest.approx(committed.loc[key, "effect"], abs=1e-6)
        assert str(one.conditions) == committed.loc[key, "conditions"]
        assert committed.loc[key, "answer"] == "inconclusive"


def test_questions_are_those_that_were_registered(tmp_path):
    registered = preregister.read_json(preregister.FOLDER / "es_wsd_99k.json", "")["statements"]
    asked = {one.key: one for one in read_questions(QUESTIONS) if one.registered}
    assert {one["key"]: one["number"] for one in registered} == {
        key: one.number for key, one in asked.items()
    }
    wrong = tmp_path / "q.toml"
    wrong.write_text('[[question]]\nkey = "a"\ncolour = "red"\n')
    with pytest.raises(InputError, match="colour"):
        read_questions(wrong)


def test_statements_are_registered_once(tmp_path, monkeypatch):
    monkeypatch.setattr(preregister, "planned_runs", lambda config: {config: ["abc"]})
    stated = tmp_path / "q.toml"
    file = tmp_path / "r.json"
    columns = 'columns = ["eval_loss"]\n'
    stated.write_text(f'{columns}[[question]]\nkey = "a"\nstatement = "s"\nnumber = "n"\n')
    preregister.state(file, stated, ["part"])
    entry = json.loads(file.read_text())
    assert entry["columns"] == ["eval_loss"]
    assert entry["runs"] == {"part": {"part": ["abc"]}}
    with pytest.raises(InputError, match="exists"):
        preregister.state(file, stated, ["part"])
    stated.write_text(f'{columns}[[question]]\nkey = "a"\n')
    with pytest.raises(InputError, match="number"):
        preregister.state(tmp_path / "other.json", stated, ["part"])
