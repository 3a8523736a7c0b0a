"""Answers of preregistered questions from planted numbers."""

import json

import numpy as np
import pytest

from bss.errors import InputError
from experiments import preregister
from experiments.es_wsd.analysis import QUESTIONS
from experiments.findings import Measured, Question, findings, read_questions

NOISE = np.array([0.001, -0.002, 0.0005, 0.002, -0.0015, 0.0, 0.001, -0.001])


def question(key, sign=-1):
    return Question(
        key=key, part="p", figure="f", statement="s", number="n", sign=sign, margin=0.005,
        unit="nats", seeds=8,
    )  # fmt: skip


def answers(**numbers):
    asked = [question(key) for key in numbers]
    measured = {key: Measured(np.asarray(x, float), "", "") for key, x in numbers.items()}
    table = findings(asked, measured, paper="p", command="c", equivalence=("same",))
    return table.set_index("key")


def test_answers_follow_sign_margin_and_noise():
    table = answers(
        lower=NOISE - 0.01, higher=NOISE + 0.01, none=NOISE, vague=20 * NOISE, same=NOISE
    )
    expected = ["supported", "contradicted", "no relevant effect", "inconclusive", "supported"]
    assert table["answer"].tolist() == expected
    assert table.loc["vague", "detectable"] > 0.005
    assert table.loc["vague", "seeds_needed"] > 8


def test_holm_counts_all_questions():
    alone = answers(one=NOISE - 0.0016)
    many = answers(one=NOISE - 0.0016, **{f"q{i}": NOISE for i in range(20)})
    assert many.loc["one", "p"] == pytest.approx(21 * alone.loc["one", "p"], rel=1e-6)


def test_a_question_without_runs_is_not_tested():
    table = findings([question("a")], {}, paper="p", command="c")
    assert table["answer"].tolist() == ["not tested"]


def test_questions_are_those_that_were_registered(tmp_path):
    registered = preregister.read_json(preregister.FOLDER / "es_wsd_99k.json", "")["statements"]
    asked = {one.key: one for one in read_questions(QUESTIONS)}
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
