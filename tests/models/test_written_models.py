"""A model as it is written: names, groups, text and values that stand for one family's value."""

import dataclasses
import json

import pytest

from bss.errors import InputError
from bss.models.sizes import SIZES, group_of, model_of, name_of, named
from bss.values import to_dict
from tests.models.bigram import Bigram

BIGRAM = {"family": "tests.models.bigram:Bigram", "width": 4}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_what_its_name_says(name):
    assert model_of(name) == model_of({"name": name}) == model_of(SIZES[name]) == named(name)
    assert model_of({"name": name}, 300) == named(name, 300)
    assert name_of(name) == name


def test_fields_replace_those_of_the_size():
    asked = {"name": "10M", "num_layers": 3}
    expected = dataclasses.replace(named("10M"), num_layers=3)
    assert model_of(asked) == model_of(json.dumps(asked)) == expected
    assert model_of({**asked, "vocab_size": 9}) == model_of(asked, 9) != expected
    assert name_of(asked) == "3x384"


def test_a_family_is_of_the_data_or_of_bytes():
    assert model_of(BIGRAM) == model_of(json.dumps(BIGRAM)) == Bigram(256, width=4)
    assert model_of(BIGRAM["family"], 300) == Bigram(300)
    assert model_of({**BIGRAM, "vocab_size": 9}) == Bigram(9, width=4)
    assert model_of(Bigram(9), 300) == Bigram(300)
    assert name_of(BIGRAM) == "Bigram"
    assert group_of(Bigram(9), 300) == to_dict(Bigram(9))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("nanoo", "did you mean 'nano'?"),
        ({"name": ["nano"]}, "expected one of pico, nano"),
        (
            {"name": "nano", "layers": 3},
            "model.layers is not a field of TransformerConfig; did you",
        ),
        ({"num_layers": 3}, "model lacks 'd_model'"),
        ({"family": "nothing:HERE"}, "model.family: nothing:HERE cannot be imported"),
        ("math:tau", "model.family: math:tau is float; expected a class made of ModelFamily"),
        ({**BIGRAM, "name": "nano"}, "model.name is not a field of Bigram"),
        ('{"name"', "is not JSON"),
        (3, "model is 3; expected a named size"),
    ],
)
def test_what_is_no_model_is_told_in_one_line(model, told):
    with pytest.raises(InputError) as error:
        model_of(model)
    assert told in str(error.value) and "\n" not in str(error.value)
