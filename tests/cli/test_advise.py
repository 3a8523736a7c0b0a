"""bss advise: the best batch size of a planned run."""

import json
from pathlib import Path

import pytest

from bss.advice.sources import EUROLLM, TABLE
from bss.cli import main
from bss.rules import RULES
from tests.cli.called import alone, printed, refused

RESULTS = Path(__file__).parents[2] / "results"
PLANNED = ("advise", "--params", "85M", "--tokens", "2.5B", "--seq-len", "1024")
INSIDE = ("advise", "--params", "350M", "--tokens", "30B", "--seq-len", "2048")


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
    assert all(name in source for name in found["source_weights"])


FAR = [("7B", "2T", 6.7, "6.7"), ("70B", "15T", 50, "50"), ("400B", "15T", 233, "230")]


@pytest.mark.parametrize(("params", "tokens", "factor", "text"), FAR)
def test_outside_all_ranges_the_answer_is_extrapolated(capsys, params, tokens, factor, text):
    planned = ("advise", "--params", params, "--tokens", tokens, "--seq-len", "4096")
    found = printed(capsys, *planned)
    assert not found["in_range"] and found["inside"] == []
    assert all(cost["loss"] is None for cost in found["costs"])
    batch = found["batch_tokens"]
    assert found["recommended_sequences"] == round(batch["value"] / 4096)
    assert 2 * batch["low"] < batch["value"] < batch["high"] / 2
    for name in found["source_weights"]:  # what each source states there itself
        rule = next((one for one in found["rules"] if one["name"] == name), None)
        assert rule is None or batch["low"] <= rule["batch_tokens"] <= batch["high"]
    assert found["extrapolation"]["factor"] == pytest.approx(factor, rel=0.02)
    first, interval, _, source = shown(capsys, *planned)[:4]
    assert first.endswith(f", extrapolated {text} ×") and "Recommended batch: " in first
    assert "extrapolated" in interval and EUROLLM in source


def test_a_receipt_of_a_batch_that_is_used(capsys):
    planned = ("advise", "--params", "7B", "--tokens", "2T", "--seq-len", "4096")
    timed = ("--step-time", "1.2 + 0.004*B", "--devices", "512", "--price", "2")
    found = printed(capsys, *planned, "--batch-tokens", "4M", *timed)
    used = found["receipt"]
    assert used["sequences"] == pytest.approx(4e6 / 4096)
    assert [row["factor"] for row in used["rows"]] == [0.5, 1, 2, 4]
    assert all(row["days"] > 0 and row["cost"] > 0 for row in used["rows"])
    assert used["largest_within_1_percent"]["value"] > found["batch_tokens"]["value"]
    text = "\n".join(shown(capsys, *planned, "--batch", "1024"))
    assert "Your batch: 4.19M tokens (1,024 sequences), " in text and "Receipt: " in text
    assert "1.07B parameters, 100B tokens" in text
    assert printed(capsys, *planned)["receipt"] is None
    refusal = refused(capsys, *planned, "--batch", "1024", "--batch-tokens", "4M")
    assert "not both" in refusal
    assert any("100B tokens" in line for line in shown(capsys, *planned, *timed))


def test_peak_lr_and_beta2_of_the_sources_are_shown(capsys):
    found = {one["name"]: one for one in printed(capsys, *INSIDE)["sources"]}
    assert found.keys() == {TABLE, EUROLLM, "power-lines", "deepseek"}
    assert 0.0005 < found[EUROLLM]["lr"] < found[TABLE]["lr"] < 0.005
    assert found["power-lines"]["lr"] is None and found[TABLE]["beta2"] == 0.95
    small = printed(capsys, "advise", "--params", "60M", "--tokens", "20B", "--seq-len", "2048")
    assert {one["name"]: one["beta2"] for one in small["sources"]}[EUROLLM] == 0.99
    assert "Muon" in "\n".join(shown(capsys, *INSIDE))


def test_rules_without_an_answer_are_in_the_json_alone(capsys):
    found = printed(capsys, *PLANNED)
    assert [rule["name"] for rule in found["rules"]] == list(RULES)
    assert {"name", "source", "batch_tokens", "lr", "in_range"} <= found["rules"][0].keys()
    assert sum(found["source_weights"].values()) == pytest.approx(1)
    lacking = [rule["name"] for rule in found["rules"] if rule["missing"]]
    answered = "\n".join(shown(capsys, *PLANNED))
    assert "minicpm" in lacking and not any(f" {name} " in answered for name in lacking)


def test_rules_that_are_named_are_the_ones_pooled(capsys):
    found = printed(capsys, *PLANNED, "--rule", "power-lines")
    (rule,) = found["rules"]
    assert rule["in_range"] is False and found["source_weights"].keys() == {
        TABLE,
        EUROLLM,
        "power-lines",
    }
    assert found["inside"] == [TABLE]


def test_a_fit_of_a_user(capsys, tmp_path):
    saved = tmp_path / "[mine].json"
    saved.write_text(json.dumps(json.loads((RESULTS / "demo/fits.json").read_text())["surface"]))
    arguments = ("--params", "99K", "--tokens", "1M", "--seq-len", "64", "--from", str(saved))
    found = printed(capsys, "advise", *arguments)
    assert found["source"] == str(saved) and found["source_weights"] == {} and found["in_range"]
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
