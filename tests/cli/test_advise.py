"""bss advise: the best batch size of a planned run."""

import json
from pathlib import Path

import pytest

from bss.advice.sources import TABLE
from bss.cli import main
from bss.rules import RULES
from tests.cli.called import alone, printed, refused

RESULTS = Path(__file__).parents[2] / "results"
PLANNED = ("advise", "--params", "85M", "--tokens", "2.5B", "--seq-len", "1024")
INSIDE = ("advise", "--params", "350M", "--tokens", "30B", "--seq-len", "2048")
OUTSIDE = ("advise", "--params", "7B", "--tokens", "2T", "--seq-len", "4096")


def shown(capsys, *arguments):
    assert main([*arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_answer_comes_first(capsys):
    found = printed(capsys, *INSIDE)
    batch, sequences = found["batch_tokens"], found["recommended_sequences"]
    assert batch["low"] < batch["value"] < batch["high"] < 4 * batch["low"]
    assert sequences == round(batch["value"] / 2048) and found["in_range"]
    half, whole, twice = found["costs"]
    assert [cost["factor"] for cost in found["costs"]] == [0.5, 1, 2]
    assert half["loss"] > 0 and twice["loss"] > 0 and whole["loss"] == pytest.approx(0, abs=1e-4)
    assert whole["steps"] == round(30e9 / (sequences * 2048))
    first, interval, costs, source = shown(capsys, *INSIDE)[:4]
    assert first == found["advice"] and f"({sequences:,} sequences of 2,048)" in first
    assert "90% interval" in interval and "within 0.003 nats" in interval
    assert f"{half['loss']:.4f}" in costs and f"steps {whole['steps']:,}" in costs
    assert all(name in source for name in found["weights"])


def test_outside_all_ranges_the_first_line_has_no_batch(capsys):
    found = printed(capsys, *OUTSIDE)
    assert not found["in_range"] and found["recommended_sequences"] is None
    assert found["inside"] == [] and all(cost["loss"] is None for cost in found["costs"])
    assert found["batch_tokens"]["low"] < found["batch_tokens"]["high"]
    first, interval = shown(capsys, *OUTSIDE)[:2]
    assert "out of range of every source" in first and not any(c.isdigit() for c in first)
    assert "extrapolated" in interval


def test_rules_without_an_answer_are_in_the_json_alone(capsys):
    found = printed(capsys, *PLANNED)
    assert [rule["name"] for rule in found["rules"]] == list(RULES)
    assert {"name", "source", "batch_tokens", "lr", "in_range"} <= found["rules"][0].keys()
    assert sum(found["weights"].values()) == pytest.approx(1)
    lacking = [rule["name"] for rule in found["rules"] if rule["missing"]]
    answered = "\n".join(shown(capsys, *PLANNED))
    assert "minicpm" in lacking and not any(f" {name} " in answered for name in lacking)


def test_rules_that_are_named_are_the_ones_pooled(capsys):
    found = printed(capsys, *PLANNED, "--rule", "power-lines")
    (rule,) = found["rules"]
    assert rule["in_range"] is False and found["weights"].keys() == {TABLE, "power-lines"}
    assert found["inside"] == [TABLE]


def test_a_fit_of_a_user(capsys, tmp_path):
    saved = tmp_path / "[mine].json"
    saved.write_text(json.dumps(json.loads((RESULTS / "demo/fits.json").read_text())["surface"]))
    arguments = ("--params", "99K", "--tokens", "1M", "--seq-len", "64", "--from", str(saved))
    found = printed(capsys, "advise", *arguments)
    assert found["source"] == str(saved) and found["weights"] == {} and found["in_range"]
    assert found["recommended_sequences"] == round(found["batch_tokens"]["value"] / 64)
    assert any("[mine].json" in line for line in shown(capsys, "advise", *arguments))


def test_a_critical_fit_is_refused(capsys, tmp_path):
    saved = tmp_path / "fit.json"
    entry = json.loads((RESULTS / "critical_batch/fits.json").read_text())["both"]
    saved.write_text(json.dumps(entry))
    line = refused(capsys, *PLANNED, "--from", str(saved))
    assert "'critical'" in line and "bss predict" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (PLANNED[3:], "--params: missing"),
        ((*PLANNED[1:], "--d-model", "0"), "--d-model 0: expected a count above 0"),
        ((*PLANNED[1:], "--noise-scale", "0"), "--noise-scale 0: expected a count above 0"),
        ((*PLANNED[1:], "--tokens", "500"), "tokens: 500 given; write a budget of one sequence"),
        ((*PLANNED[1:], "--total-params", "1B"), "--total-params"),
        ((*PLANNED[1:], "--rule", "step"), "rule: 'step' is unknown; did you mean 'step-law'"),
        ((*PLANNED[1:], "--lr", "0"), "lr: 0.0 given; write a positive number"),
        ((*PLANNED[1:], "--from", "none.json"), "--from none.json: no such file"),
        ((*PLANNED[1:], "--from", "kind.json"), "--from kind.json: is of kind None, no fit"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    Path("kind.json").write_text("{}")
    assert says in refused(capsys, "advise", *arguments)


def test_it_loads_no_heavy_module():
    modules = alone(*INSIDE, "--json")
    assert not modules & {"jax", "pandas", "matplotlib"}
