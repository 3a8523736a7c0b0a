"""The pictures of README and docs: their JSON has the numbers and labels of the code."""

import copy
import json
import re

import numpy as np
import pytest

from bss.advice import recommend
from bss.rules import Setting
from bss.units import rounded_tokens
from tests.page.conftest import ROOT
from tests.test_docs import hook

ASSETS = ROOT / "docs" / "assets"
pictures = hook("pictures")
DEAR = ("batch_sizes", "best_lr", "equal_time", "rates_map")  # fits, and a map of 24 s


def written(name):
    return json.loads((ASSETS / f"{name}.json").read_text())


def differences(one, other, at=""):
    """Where two JSON values differ: numbers by more than 1%, all else at all."""
    if isinstance(one, float) and isinstance(other, float):
        return [] if one == pytest.approx(other, rel=0.01, abs=1e-4) else [at]
    if type(one) is not type(other):
        return [at]
    if isinstance(one, dict):
        keys = one.keys() ^ other.keys()
        shared = one.keys() & other.keys()
        return [*keys, *(x for k in shared for x in differences(one[k], other[k], f"{at}.{k}"))]
    if isinstance(one, list):
        if len(one) != len(other):
            return [at]
        pairs = enumerate(zip(one, other, strict=True))
        return [x for i, (a, b) in pairs for x in differences(a, b, f"{at}[{i}]")]
    return [] if one == other else [at]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in pictures.FIGURES],
)
@pytest.mark.filterwarnings("ignore")  # of the fits; the pages show them
def test_a_picture_is_what_the_code_draws(name):
    now = json.loads(json.dumps(pictures.shown(pictures.FIGURES[name]())))
    assert differences(now, written(name)) == []


def test_an_edited_number_or_label_is_noticed():
    committed = written("equal_time")
    assert differences(committed, committed) == []
    number, label = copy.deepcopy(committed), copy.deepcopy(committed)
    number["panels"][0]["lines"][0][1][3] *= 1.02
    label["panels"][1]["x"] += "s"
    assert differences(number, committed) == [".panels[0].lines[0][1][3]"]
    assert differences(label, committed) == [".panels[1].x"]


def test_the_calculator_shows_the_fields_of_the_page_and_the_answer_of_advise():
    committed = written("calculator")
    page = (ROOT / "docs/_site/calculator/page.html").read_text()
    assert committed["fields"] == re.findall(r"<label>([^<]+)<input", page)
    advice = recommend(Setting(350e6, 30e9, 2048))
    assert committed["answer"] == (
        f"Recommended batch size: {rounded_tokens(2048 * advice.sequences)} tokens "
        f"({advice.sequences} sequences of 2,048)"
    )
    interval = committed["facts"]["90% interval of the optimum"]
    ends = [rounded_tokens(x) for x in (advice.batch.low, advice.batch.high)]
    assert interval == f"{ends[0]} to {ends[1]} tokens"


def test_every_picture_has_a_dark_one_and_its_numbers():
    names = {path.stem for path in ASSETS.glob("*.png") if not path.stem.endswith("-dark")}
    assert names == {*pictures.FIGURES, "calculator"}
    for name in names:
        assert (ASSETS / f"{name}-dark.png").exists() and written(name)


def test_a_dark_picture_exchanges_light_and_dark_and_keeps_hues():
    white, black, blue = pictures.darkened(np.array([[[1, 1, 1], [0, 0, 0], [0.1, 0.2, 0.4]]]))[0]
    assert white == pytest.approx(pictures.DARK) and black == pytest.approx(1)
    assert blue[2] > blue[1] > blue[0] > 0.5
