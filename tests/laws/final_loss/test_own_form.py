"""A form of one's own, in one file, is chosen among, fitted, read back and asked."""

import json

import pytest

from bss.cli import main
from tests.laws.final_loss.test_fit import planted

OWN = """
import numpy as np
from dataclasses import dataclass
from bss.laws.final_loss.forms import Form

@dataclass(frozen=True)
class Bowl(Form):
    names = ("L_0", "G", "g", "h", "B_star", "q")
    logs = frozenset({"G", "h", "B_star"})

    def loss(self, theta, n, d, b, xp=np):
        L_0, G, g, h, B_star, q = theta
        return L_0 + xp.exp(G - g * d) + xp.exp(h) * (b - B_star - q * d) ** 2 + 0 * n

    def box(self, points):
        return np.array([0, -9, 0.01, -9, -9, -1.0]), np.array([9, 3, 3, 3, 9, 2.0])

    def starts(self, points, weight):
        return np.array([[points.loss.min() * 0.8, -1, 0.4, -4, 0, 0.5]])

FORM = Bowl("bowl", "L = L_0 + G·D^-g + h·(log B/B*)²")
"""


@pytest.mark.slow
def test_a_form_of_ones_own(tmp_path, monkeypatch, capsys):
    (tmp_path / "ownform.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    planted(sizes=(4e8,), ratios=(10, 30, 90, 270), noise=0.001).to_csv("runs.csv", index=False)
    call = ["fit", "loss", "runs.csv", "--form", "ownform:FORM", "--resamples", "20", "--json"]
    assert main(call) == 0
    printed = capsys.readouterr().out
    fit = json.loads(printed)
    assert fit["law"]["form"] == "ownform:FORM"
    assert 0.3 < fit["parameters"]["q"]["value"] < 0.7
    (tmp_path / "fit.json").write_text(printed)
    assert main(["predict", "--from", "fit.json", "--params", "400M", "--tokens", "20B"]) == 0
    assert "ownform:FORM" in capsys.readouterr().out
    assert main([*call[:-4], "nowhere:FORM"]) == 2
    assert "nowhere:FORM cannot be imported" in capsys.readouterr().err
