"""A policy in one file of a user's own: through bss schedule."""

import json

import pytest

from bss.cli import main

OWN = '''
"""Doubles the batch at equal distances, from the smallest measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Doubling:
    times: int = 3

    def __call__(self, basis, tokens, limits):
        choices = limits.within(basis.measured)
        return choices.follow(
            lambda count: choices.low * 2 ** ((self.times + 1) * count // tokens), tokens
        )


POLICY = Doubling()
NUMBER = 3


def nothing(basis, tokens, limits):
    return None
'''


@pytest.fixture
def own(tmp_path, monkeypatch, planted_curves):
    (tmp_path / "mypolicy.py").write_text(OWN)
    (tmp_path / "fit.json").write_text(json.dumps(planted_curves.fit.to_dict()))
    monkeypatch.chdir(tmp_path)
    return ("schedule", "--from", "fit.json", "--tokens", "1M", "--min-batch", "2")


def test_it_makes_the_schedule_on_the_command_line(own, capsys):
    assert main([*own, "--policy", "mypolicy:POLICY", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["policy"] == "mypolicy:POLICY"
    assert told["batch"] == "0:2 250K:4 500K:8 750K:16"
    assert main([*own, "--policy=mypolicy:POLICY", "--set", "times=1"]) == 0
    assert '--batch "0:2 500K:4"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--policy", "mypolicy:LATER"), "no attribute 'LATER'"),
        (
            ("--policy", "mypolicy:NUMBER"),
            "mypolicy:NUMBER is int; expected Policy",
        ),
        (("--policy", "mypolicy:nothing"), "gave None; expected a BatchSchedule"),
        (("--policy", "late-swich"), "did you mean 'late-switch'? choose one of follow-optimum"),
        (
            ("--policy", "late-switch", "--set", "at=2"),
            "at: 2.0 given; write a share of the tokens",
        ),
        (("--policy", "late-switch", "--set", "when=2"), "late-switch.when is not a field"),
        (("--policy", "late-switch", "--set", "at"), "expected NAME=VALUE"),
        (("--policy", "late-switch", "--stages", "1"), "a late switch has 2"),
        (("--policy", "follow-optimum"), "reads a fit of `bss fit es`"),
        (("--policy", "theory"), "source: the theory's exponent is missing"),
    ],
)
def test_what_no_policy_can_do_is_told_in_one_line(own, capsys, options, told):
    assert main([*own, *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error
