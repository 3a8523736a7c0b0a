"""bss advise: the best batch of a run before it is trained."""

import json
from pathlib import Path

import pytest

from bss.advice.advice import WIDER, WIDTH
from bss.cli import main
from bss.rules import RULES
from tests.cli.called import alone, printed, refused

RESULTS = Path(__file__).parents[2] / "results"
ASKED = ("advise", "--params", "85M", "--tokens", "2.5B", "--seq-len", "1024")
INSIDE = ("advise", "--params", "350M", "--tokens", "30B", "--seq-len", "2048")


def test_what_it_prints(capsys):
    told = printed(capsys, *ASKED)
    assert [rule["name"] for rule in told["rules"]] == list(RULES)
    assert {"name", "source", "batch_tokens", "lr", "in_range"} <= told["rules"][0].keys()
    assert told["batch_tokens"].keys() == {"value", "low", "high"}
    assert [cost["factor"] for cost in told["cost_of"]] == [0.5, 1, 2, 4]
    assert {"factor", "loss", "steps"} <= told["cost_of"][0].keys()
    assert told["by"] == "rules"
    assert "rules say between 134,788 and 244,172" in told["advice"]
    steps = [cost["steps"] for cost in told["cost_of"]]
    assert steps[1] == round(2.5e9 / told["batch_tokens"]["value"]) > steps[2] > steps[3]


def test_a_rule_outside_of_its_range_is_answered_and_said(capsys):
    told = printed(capsys, *ASKED, "--rule", "power-lines")
    (rule,) = told["rules"]
    assert rule["in_range"] is False and rule["batch_tokens"] > 0
    assert "power-lines: params 8.5e+07 is outside 1.11e+08 to 3.3e+09" in told["notes"]
    assert "no rule of a best batch has this setting in its range" in told["notes"]
    assert told["spread"]["low"] == told["spread"]["high"] == rule["batch_tokens"]
    assert told["by"] == "rules"
    beyond = float(told["notes"][1].split("the fit says ")[1].split()[0].replace(",", ""))
    assert beyond == pytest.approx(203_000, rel=0.03)
    found, half = told["batch_tokens"], WIDTH**0.5
    assert found["high"] == pytest.approx(rule["batch_tokens"] * half * (1.11 / 0.85) ** WIDER)
    assert found["low"] == pytest.approx(beyond / half / (215 / 85) ** WIDER, rel=3e-3)
    assert found["value"] ** 2 == pytest.approx(beyond * rule["batch_tokens"], rel=1e-3)


def test_inside_the_published_table_losses_are_known(capsys):
    assert main([*INSIDE, "--lr", "1e-3"]) == 0
    shown = capsys.readouterr().out
    for text in ("2 ×", "nats above the best", "not of 0.001 at all"):
        assert text in shown
    told = printed(capsys, *INSIDE)
    assert told["by"] == "fit" and "arXiv 2503.04715" in told["from"]
    batch = told["batch_tokens"]
    assert batch["low"] < batch["value"] < batch["high"] < 4 * batch["low"]
    assert told["cost_of"][3]["loss"] > told["cost_of"][1]["loss"] >= 0


def test_parameters_are_those_without_embeddings(capsys):
    total = ("--total-params", "110101632", "--vocab", "32768", "--d-model", "768")
    told = printed(capsys, "advise", *total, *ASKED[3:])
    assert told["setting"]["params"] == 59_769_984
    told = printed(capsys, "advise", *total, "--tied", *ASKED[3:])
    assert told["setting"]["params"] == 110_101_632 - 32_768 * 768


@pytest.mark.parametrize(
    ("file", "key", "expected"),
    [("demo/fits.json", "surface", "fit"), ("critical_batch/fits.json", "both", "nobody")],
)
def test_a_fit_of_ones_own(capsys, tmp_path, file, key, expected):
    saved = tmp_path / "[mine].json"
    saved.write_text(json.dumps(json.loads((RESULTS / file).read_text())[key]))
    asked = ("--params", "99K", "--tokens", "1M", "--seq-len", "64", "--from", str(saved))
    told = printed(capsys, "advise", *asked)
    assert told["by"] == expected and told["from"] == str(saved)
    assert (told["critical_tokens"] is None) == (expected == "fit")
    assert main(["advise", *asked]) == 0
    shown = capsys.readouterr().out.split("the batch")[1]
    assert ("critical" in shown) == (expected != "fit") and "[mine].json" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (ASKED[3:], "--params: give it, non-embedding, or --total-params, one of them"),
        ((*ASKED[1:], "--total-params", "1B"), "--params: give it, non-embedding, or"),
        ((*ASKED[1:], "--vocab", "32768"), "--vocab: goes with --total-params; leave it out with"),
        ((*ASKED[1:], "--tied"), "--tied: goes with --total-params; leave it out with --params"),
        ((*ASKED[1:], "--tokens", "500"), "tokens: 500 given; write a budget of one sequence, 1,"),
        ((*ASKED[3:], "--total-params", "1B"), "--vocab: missing; --total-params needs it"),
        ((*ASKED[1:], "--rule", "step"), "rule: 'step' is unknown; did you mean 'step-law'"),
        ((*ASKED[1:], "--lr", "0"), "lr: 0.0 given; write a positive number"),
        ((*ASKED[1:], "--from", "none.json"), "--from none.json: there is no such file"),
        (
            (*ASKED[1:], "--from", "kind.json"),
            "--from kind.json: is of kind None, no fit; `bss advise` reads",
        ),
    ],
)
def test_bad_input_is_told_in_one_line(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    Path("kind.json").write_text("{}")
    assert says in refused(capsys, "advise", *arguments)


def test_it_loads_no_heavy_module():
    modules = alone(*INSIDE, "--json")
    assert not modules & {"jax", "pandas", "scipy", "matplotlib", "numpy.random", "rich"}


def test_a_mixture_of_experts_is_answered_by_active_and_by_all(capsys):
    asked = ["advise", "--params", "2B", *INSIDE[3:], "--active-params", "350M"]
    told, dense = printed(capsys, *asked), printed(capsys, *INSIDE)
    assert told["batch_tokens"] == dense["batch_tokens"] and told["setting"]["params"] == 350e6
    assert told["experts"]["total"] == printed(capsys, "advise", *asked[1:-2])["advice"]
    assert "a mixture of experts, which no source has" in told["notes"][0]
    wrong = refused(capsys, *asked[:-1], "3B")
    assert "--active-params: 3000000000 given; write 1 to all of 2,000,000,000" in wrong
