"""A user's optimizer, rate and model family, in modules of their own, as those of the package."""

import dataclasses
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from bss.errors import InputError
from bss.sweeps.cost import estimate_cost
from bss.sweeps.grid import overlay
from bss.sweeps.local import LocalEngine
from bss.sweeps.setup import EngineConfig
from bss.sweeps.table import run_table
from bss.training.loop import Interrupted, train
from bss.training.optimizers import AdamW
from bss.training.run_config import RunConfig
from bss.training.step import Sums, accumulate
from bss.values import from_dict, to_dict

LION, BIGRAM = "tests.training.lion:Lion", "tests.models.bigram:Bigram"
HALVING = "tests.schedules.own:HALVING"


@pytest.fixture(scope="module")
def own_run(tiny_run):
    model = {"family": BIGRAM, "vocab_size": tiny_run.model.vocab_size}
    changes = {"model": model, "optimizer.name": LION, "optimizer.interpolation": 0.8}
    return overlay(tiny_run, changes | {"schedule.tokens": 2048, "schedule.rate": HALVING})


def test_they_are_read_written_and_named_in_the_id(tiny_transformer, own_run):
    values = to_dict(own_run)
    assert values["model"]["family"] == BIGRAM
    assert values["optimizer"]["name"] == LION
    assert values["schedule"]["rate"] == HALVING
    assert from_dict(RunConfig, values) == own_run
    assert "family" not in to_dict(tiny_transformer)["model"]
    others = ({"optimizer.interpolation": 0.9}, {"model.shrink": 1.0}, {"optimizer.beta1": 0.5})
    ids = [tiny_transformer.id, own_run.id, *(overlay(own_run, changes).id for changes in others)]
    assert len(set(ids)) == 5
    with pytest.raises(InputError, match=f"model.family: {LION} is type; expected a class made of"):
        overlay(own_run, {"model.family": LION})


@pytest.mark.slow
def test_the_engine_trains_and_continues_them(own_run, tiny_execution):
    short = overlay(own_run, {"schedule.tokens": 1024})
    with LocalEngine(EngineConfig(workers=1, retries=0)) as engine:
        for run in (short, own_run):
            status = engine.train([run], tiny_execution)[run.id]
            assert (status.status, status.tokens) == ("finished", run.schedule.tokens)
    table = run_table(Path(tiny_execution.runs), [own_run])
    wanted = [own_run.plan().at(step - 1).settings.lr for step in table["step"]]
    assert table["lr"].tolist() == pytest.approx(wanted, rel=1e-6)
    assert set(table["model"]) == {"Bigram"}
    assert table["eval_loss"].iloc[-1] < table["eval_loss"].iloc[0] - 0.2


def test_a_model_without_products_is_trained_and_priced(own_run, tiny_execution, monkeypatch):
    monkeypatch.setattr(type(own_run.model), "forward_flops_per_token", lambda *_: 0)
    short = overlay(own_run, {"schedule.tokens": 512})
    assert train(short, tiny_execution).status == "finished"
    assert estimate_cost([short]).flops == 0


@pytest.mark.slow
def test_a_killed_one_ends_bit_identically(
    own_run, tiny_execution, stop_after, assert_same_outcome
):
    with pytest.raises(Interrupted):
        train(own_run, tiny_execution, stop=stop_after(40))
    assert train(own_run, tiny_execution).recompilations == 0
    straight = dataclasses.replace(tiny_execution, runs=f"{tiny_execution.runs}-straight")
    train(own_run, straight)
    assert_same_outcome(own_run, tiny_execution, own_run, straight)


def test_auxiliary_terms_are_minimised_and_not_reported(own_run):
    params = own_run.model.init(0)
    sequences = jnp.arange(34).reshape(2, 17)
    zero = Sums(jax.tree.map(jnp.zeros_like, params), jnp.zeros(()), jnp.zeros(()))
    shrunk = replace(own_run.model, shrink=1.0)
    without, with_ = (
        jax.jit(partial(accumulate, model.loss))(params, zero, sequences)
        for model in (own_run.model, shrunk)
    )
    assert without.loss == with_.loss
    assert jnp.abs(without.gradients["head"] - with_.gradients["head"]).max() > 0.1


def test_what_a_worker_cannot_import_is_refused_before_anything_starts(tiny_run, tiny_execution):
    @dataclass(frozen=True)
    class InACell(AdamW):
        """Defined where no other process finds it."""

    run = replace(tiny_run, optimizer=InACell())
    with pytest.raises(
        InputError, match=r"optimizer\.name: .*InACell' cannot be imported by a worker"
    ):
        LocalEngine(EngineConfig(workers=1, retries=0)).train([tiny_run, run], tiny_execution)
    assert not Path(tiny_execution.runs).exists()
