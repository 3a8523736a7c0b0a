"""A model family wherever a set-up, an axis or a cost takes a model."""

import json

import pytest

from bss.errors import InputError
from bss.models.sizes import named
from bss.sweeps.cost import estimate_cost
from bss.sweeps.grid import expand, overlay, sweep_product
from bss.sweeps.setup import Setup, planned_run
from bss.values import from_dict, to_dict
from tests.models.bigram import Bigram

BIGRAM = {"family": "tests.models.bigram:Bigram", "width": 4}
SETUP = {"schedule": {"tokens": 10_000, "batch": "4"}, "evaluation": {"tokens": 1024}}


@pytest.mark.parametrize("model", ["nano", {"name": "nano", "num_layers": 3}, BIGRAM])
def test_a_setup_is_written_as_it_was_read(model):
    setup = from_dict(Setup, {**SETUP, "model": model})
    assert to_dict(setup)["model"] == model
    assert from_dict(Setup, to_dict(setup)) == setup
    assert planned_run(setup, 300).model.vocab_size == 300
    assert from_dict(Setup, {**SETUP, "model": json.dumps(model).strip('"')}) == setup
    with pytest.raises(InputError, match="model='nanoo'"):
        from_dict(Setup, {"model": "nanoo"})


def test_no_count_of_an_engine_is_negative():
    for name in ("workers", "retries", "vmap_runs"):
        with pytest.raises(InputError, match=rf"engine\.{name} is -1; expected 0 or more"):
            from_dict(Setup, {**SETUP, "engine": {name: -1}})


def test_an_axis_of_models_keeps_the_vocabulary_of_the_data():
    base = planned_run(from_dict(Setup, {**SETUP, "model": BIGRAM}), 300)
    deeper = {"name": "nano", "num_layers": 3}
    runs = expand(base, sweep_product({"model": ["nano", deeper, BIGRAM, Bigram(300, 8)]}))
    assert [run.model.label for run in runs] == ["2x64", "3x64", "Bigram", "Bigram"]
    assert {run.model.vocab_size for run in runs} == {300}
    assert runs[0].model == named("nano", 300) and runs[2] == base
    assert estimate_cost(runs).flops == pytest.approx(
        sum(estimate_cost([run]).flops for run in runs)
    )
    wider = overlay(base, {"model": "nano", "model.d_model": 32})
    assert wider.model == overlay(runs[0], {"model.d_model": 32}).model
    with pytest.raises(InputError, match="model is 3; expected a named size"):
        overlay(base, {"model": 3})
