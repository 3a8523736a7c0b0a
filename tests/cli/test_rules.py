"""bss rules: the table of published rules."""

import pytest

from bss.cli import main
from tests.cli.called import alone, printed, refused

ASKED = ("rules", "--params", "85M", "--tokens", "2.5B", "--seq-len", "1024")


def test_every_rule_answers_or_says_what_it_lacks(capsys):
    told = printed(capsys, *ASKED, "--loss", "3.3", "--noise-scale", "200K")
    by_name = {entry["name"]: entry for entry in told["rules"]}
    assert told["kind"] == "rules" and told["setting"]["compute"] == 6 * 85e6 * 2.5e9
    assert by_name["step-law"]["batch_tokens"] == pytest.approx(134_788, abs=1)
    assert by_name["step-law"]["in_range"] is True
    assert by_name["power-lines"]["outside"] == ["params 8.5e+07 is outside 1.11e+08 to 3.3e+09"]
    assert by_name["mccandlish"] == {
        "name": "mccandlish", "source": "arXiv 1812.06162", "batch": "critical",
        "batch_tokens": 200_000, "lr": None, "beta1": None, "beta2": None, "epsilon": None,
        "weight_decay": None, "in_range": None, "outside": [], "missing": [],
    }  # fmt: skip
    assert by_name["marin"]["missing"] == ["d_model"]
    assert main(list(ASKED)) == 0
    told = capsys.readouterr().out
    assert "marin: needs --d-model" in told and "power-lines: params 8.5e+07 is outside" in told


def test_the_reference_is_scaled_and_what_cannot_be_is_told(capsys):
    reference = ("--batch-tokens", "128K", "--lr", "1e-3", "--beta2", ".95", "--weight-decay", ".1")
    asked = (*ASKED, *reference, "--to", "512K")
    by_name = {entry["name"]: entry for entry in printed(capsys, *asked)["scalings"]}
    assert by_name["sqrt"]["lr"] == pytest.approx(2e-3)
    assert by_name["half-life"]["beta2"] == pytest.approx(0.95**4)
    assert by_name["timescale"]["weight_decay"] == pytest.approx(0.4)
    assert "surge" not in by_name
    longer = printed(capsys, *ASKED, *reference, "--to-tokens", "5B")["scalings"]
    by_name = {entry["name"]: entry for entry in longer}
    assert by_name["timescale"]["weight_decay"] == pytest.approx(0.05)
    assert by_name["filatov"]["lr"] == pytest.approx(1e-3 * 2**-0.56)
    assert by_name["filatov"]["batch_tokens"] == 128_000
    assert main(list(asked)) == 0
    assert "surge: noise_scale: missing" in capsys.readouterr().out


def test_one_rule_and_a_ramp_at_the_budget(capsys):
    told = printed(capsys, *ASKED, "--rule", "zhang", "--ramp", "llama-3-405b")
    assert [entry["name"] for entry in told["rules"]] == ["zhang"]
    ramp = told["ramp"]
    assert ramp["name"] == "llama-3-405b" and ramp["batch"] == "0:4096 40384:8192 459935897:16384"
    assert ramp["unseen"] == ["stage 0:4096 is shorter than its step of 4,194,304 tokens"]
    small = [*ASKED[:4], "1M", *ASKED[5:], "--rule", "zhang", "--ramp", "llama-3-405b"]
    assert "1M holds no step of 4096 sequences" in printed(capsys, *small)["ramp"]["unseen"][0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--rule", "step"), "rule: 'step' is unknown; did you mean 'step-law'"),
        (("--ramp", "llama"), "ramp: 'llama' is unknown"),
        (("--to", "1M"), "--to: scales from a reference; give its batch, --batch-tokens"),
        (("--loss", "-1"), "loss: -1.0 given; write a positive number"),
        (("--noise-scale", "many"), "--noise-scale: 'many' is not a count"),
        (("--batch-tokens", "1M", "--to", "0"), "--to 0: expected a count above 0"),
        (("--batch-tokens", "1M", "--to-tokens", "0"), "--to-tokens 0: expected a count above 0"),
        (("--tokens", "500"), "tokens: 500 given; write a budget of one sequence"),
    ],
)
def test_bad_input_is_told_in_one_line(capsys, more, says):
    assert says in refused(capsys, *ASKED, *more)


def test_it_loads_no_heavy_module():
    modules = alone(*ASKED)
    assert not modules & {"jax", "numpy", "pandas", "scipy", "matplotlib"}
