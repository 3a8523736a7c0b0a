"""How the layers of a run are computed on a device: as asked, else as suits it and its memory."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bss.errors import InputError
from bss.models.base import DEFAULT_LAYERS, LOGITS_AT_ONCE, Head, Layers
from bss.models.network import remat_policy
from bss.models.sizes import named
from bss.training.execution import Execution, describe
from bss.training.hardware import target_of
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import make_mesh
from tests.models.bigram import Bigram

RUN = RunConfig(named("85M"), DataConfig(seq_len=1024))
H100 = "NVIDIA H100 80GB HBM3"
GIVEN = 78.2e9


def mesh(kind, platform="cuda") -> Any:
    device = SimpleNamespace(platform=platform, device_kind=kind)
    return SimpleNamespace(devices=np.array([device], object), size=1)


def test_on_a_gpu_all_is_kept_where_half_of_what_is_left_holds_it():
    layers = Execution().layers_of(RUN, mesh(H100))
    assert (layers.unroll, layers.remat_policy) == (0, "all")
    target = target_of(H100)
    assert target is not None and layers.remat_budget_bytes is not None
    assert 2 * layers.remat_budget_bytes == pytest.approx(
        GIVEN - 20 * RUN.model.counts().total, rel=1e-3
    )
    six = dataclasses.replace(RUN, averages=("4%",) * 6)
    fewer = Execution().layers_of(six, mesh(H100)).remat_budget_bytes
    assert fewer is not None and layers.remat_budget_bytes - fewer == pytest.approx(
        12 * RUN.model.counts().total
    )


@pytest.mark.parametrize(
    ("kind", "bucket", "policy"),
    [("TPU v5 lite", 8, "products"), ("TPU v5 lite", 16, "attention"), ("TPU v5", 16, "all")],
)
def test_on_a_tpu_layers_stay_in_a_loop_and_keep_what_its_memory_holds(kind, bucket, policy):
    layers = Execution().layers_of(RUN, mesh(kind, "tpu"))
    assert layers.unroll == 1
    assert remat_policy(RUN.model, bucket * 1024, layers) == policy  # type: ignore[arg-type]


def test_an_unknown_tpu_keeps_nothing_and_a_request_is_followed():
    assert Execution().layers_of(RUN, mesh("TPU v99", "tpu")) == DEFAULT_LAYERS
    asked = Execution(remat_policy="attention").layers_of(RUN, mesh("TPU v5 lite", "tpu"))
    assert asked == Layers(1, "attention")


@pytest.mark.parametrize(
    ("execution", "kind", "expected"),
    [
        (Execution(fsdp=8), H100, DEFAULT_LAYERS),
        (Execution(), "a GPU that no table has", DEFAULT_LAYERS),
        (Execution(unroll=2, remat_policy="products", fsdp=8), H100, Layers(2, "products")),
    ],
)
def test_what_is_asked_for_is_done_and_split_weights_are_taken_in_a_loop(execution, kind, expected):
    assert execution.layers_of(RUN, mesh(kind)) == expected


def test_a_cpu_takes_layers_one_by_one_unless_asked_and_records_what_it_did():
    here = make_mesh()
    assert Execution().layers_of(RUN, here) == DEFAULT_LAYERS
    assert describe(here, Execution())["layers"]["unroll"] == 1
    asked = Execution(unroll=3, remat_policy="nothing").layers_of(RUN, here)
    recorded = describe(here, Execution(), layers=asked)["layers"]
    assert recorded == {"unroll": 3, "remat_policy": "nothing", "remat_budget_bytes": None}
    own = dataclasses.replace(RUN, model=Bigram(29))
    assert Execution(unroll=3).layers_of(own, mesh(H100)) == DEFAULT_LAYERS


def test_logits_are_as_asked_and_chunks_are_larger_on_a_large_gpu():
    asked = Execution(logits_dtype="bfloat16")
    assert asked.layers_of(RUN, mesh(H100)).head == Head("bfloat16", 4 * LOGITS_AT_ONCE)
    assert asked.layers_of(RUN, mesh("TPU v5 lite", "tpu")).head == Head("bfloat16")
    here = make_mesh()
    assert describe(here, asked, layers=asked.layers_of(RUN, here))["head"] == {
        "logits_dtype": "bfloat16",
        "chunk_logits": 0,
    }
    own = dataclasses.replace(RUN, model=Bigram(29))
    with pytest.raises(InputError, match=r"logits_dtype is bfloat16; .* its own logits: write fl"):
        asked.layers_of(own, here)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"buckets": (0,)}, "execution.buckets is 0; expected 1 or more"),
        ({"buckets": (8, -4)}, "execution.buckets is 8, -4; expected 1 or more"),
        ({"forks": (0, 512)}, "execution.forks is 0, 512; expected 1 or more"),
        ({"logits_dtype": "float16"}, "execution.logits_dtype is 'float16'; expected one of"),
        ({"fsdp": 0}, "execution.fsdp is 0; expected 1 or more"),
        *(
            ({name: -1}, f"execution.{name} is -1; expected 0 or more")
            for name in (
                *("devices", "checkpoint_seconds", "step_limit", "steps_per_dispatch"),
                *("evaluation_bucket", "unroll", "log_every"),
            )
        ),
        ({"step_limit": float("nan")}, "execution.step_limit is nan; expected 0 or more"),
    ],
)
def test_a_number_out_of_its_range_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Execution(**fields)


def test_unknown_things_are_not_kept():
    with pytest.raises(InputError, match=r"execution.remat_policy is 'some'; expected one of"):
        Execution(remat_policy="some")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"execution.unroll is -1; expected 0 or more"):
        Execution(unroll=-1)
