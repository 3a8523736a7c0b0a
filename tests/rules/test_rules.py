"""Rules and scalings as values: ranges, what is missing, a user's own."""

from dataclasses import fields

import pytest

from bss.errors import InputError
from bss.rules import (
    RULES,
    SCALINGS,
    Change,
    Hyperparameters,
    Setting,
    answers,
    non_embedding,
)

KNOWN = Setting(2e8, 1e10, 1024, d_model=768, loss=3.0, noise_scale=2e5, batch_tokens=2e5, lr=1e-3)
START = Hyperparameters(2**18, 1e-3, 0.9, 0.95, 1e-8, 0.1)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_answers_a_complete_setting(name):
    rule, found = RULES[name], RULES[name](KNOWN)
    given = [getattr(found, field.name) for field in fields(found)]
    assert any(value is not None for value in given)
    assert all(value > 0 for value in given if value is not None)
    assert (found.batch_tokens is not None) >= (rule.batch is not None)
    assert set(rule.fitted) <= {"params", "tokens", "tokens_per_param", "compute", "d_model"}
    assert rule.source


def test_a_rule_reports_what_it_needs_and_others_answer():
    found = {a.name: a for a in answers(Setting(85e6, 2.5e9, 1024))}
    lacking = {name: a.missing for name, a in found.items() if a.missing}
    assert lacking == {
        "minicpm": ("loss",),
        "kaplan": ("loss",),
        "mccandlish": ("noise_scale",),
        "marin": ("d_model",),
        "power-lines-decay": ("lr",),
    }
    assert all(found[name].hyperparameters == Hyperparameters() for name in lacking)
    with pytest.raises(InputError, match="loss: missing; the rule of arXiv"):
        RULES["minicpm"](Setting(85e6, 2.5e9, 1024))


def test_outside_its_range_a_rule_answers_and_says_so():
    inside, outside = (
        answers(Setting(3e8, tokens, 2048), ["step-law"])[0] for tokens in (1e10, 1e12)
    )
    assert inside.in_range and not inside.outside
    assert outside.in_range is False
    assert outside.outside == ("tokens 1e+12 is outside 2e+09 to 1e+11",)
    assert outside.hyperparameters.batch_tokens is not None
    assert answers(KNOWN, ["mccandlish"])[0].in_range is None


@pytest.mark.parametrize("field", [field.name for field in fields(Setting)])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_setting_is_positive(field, value):
    given = {"params": 1e8, "tokens": 1e9, "seq_len": 1024, field: value}
    with pytest.raises(InputError, match=f"{field}: {value} given; write a positive number"):
        Setting(**given)


def test_a_budget_holds_a_sequence():
    with pytest.raises(
        InputError, match="tokens: 500 given; write a budget of one sequence, 1,024"
    ):
        Setting(1e8, 500, 1024)


def test_a_rule_of_a_user_answers_as_the_others(tmp_path, monkeypatch):
    (tmp_path / "myrule.py").write_text(
        "from bss.rules import Hyperparameters, Rule\n"
        "RULE = Rule('ours', lambda s: Hyperparameters(batch_tokens=100 * s.seq_len),\n"
        "            fitted={'seq_len': (64, 512)})\n"
        "NUMBER = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    found = answers(Setting(1e8, 1e9, 1024), ["myrule:RULE"])[0]
    assert (found.name, found.hyperparameters.batch_tokens, found.in_range) == (
        "myrule:RULE",
        102_400,
        False,
    )
    with pytest.raises(InputError, match="myrule:NUMBER is int; expected Rule"):
        answers(KNOWN, ["myrule:NUMBER"])
    with pytest.raises(InputError, match="did you mean 'step-law'"):
        answers(KNOWN, ["steplaw"])


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_by_steps_is_that_at_once_and_none_changes_nothing(name):
    def at(reference, batch):
        return SCALINGS[name](reference, Change(batch, noise_scale=3e5))

    def values(found):
        return [getattr(found, field.name) for field in fields(found)]

    assert values(at(START, 2**18)) == pytest.approx(values(START))
    by_steps = at(at(START, 2**17), 2**19)
    assert values(by_steps) == pytest.approx(values(at(START, 2**19)))
    assert by_steps.batch_tokens == 2**19 and by_steps != START
    alone = at(Hyperparameters(batch_tokens=2**18), 2**19)
    assert alone == Hyperparameters(batch_tokens=2**19)


def test_a_scaling_refuses_what_it_cannot_do():
    with pytest.raises(InputError, match="noise_scale: missing; the rule"):
        SCALINGS["surge"](START, Change(2**19))
    with pytest.raises(InputError, match="batch_tokens of the reference: missing"):
        SCALINGS["sqrt"](Hyperparameters(lr=1e-3), Change(2**19))
    with pytest.raises(InputError, match="has no value at 16 times the batch"):
        SCALINGS["sde"](START, Change(2**22))
    with pytest.raises(InputError, match="horizon: 0 given"):
        Change(2**19, horizon=0)


def test_parameters_without_embeddings():
    assert non_embedding(1e6, 1000, 100) == 8e5
    assert non_embedding(1e6, 1000, 100, tied=True) == 9e5
    with pytest.raises(InputError, match="total params: 1,000 is less than the embeddings"):
        non_embedding(1000, 1000, 100)
    with pytest.raises(InputError, match="vocab: -5 given; write a positive number"):
        non_embedding(1e9, -5, 100)
    assert Setting(2, 3, 1).compute == 36 and Setting(2, 3, 1, flops=5).compute == 5
