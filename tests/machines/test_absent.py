"""A tiny run compiled for machines that are not here, where their compilers are installed."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from bss.models.transformer.config import TransformerConfig
from bss.models.transformer.mixture import MixtureConfig
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.training.config import DataConfig, EvaluationConfig, RunConfig
from bss.training.optimizers import AdamW
from bss.values import to_dict

MODEL = TransformerConfig(512, 2, 128, 2, 512, dtype="bfloat16", scan_layers=True)
RUN = RunConfig(
    MODEL,
    DataConfig(seq_len=256),
    AdamW(),
    ScheduleConfig(256 * 320, BatchSchedule((0,), (16,))),
    EvaluationConfig(tokens=256 * 16),
)

# The reference spares queries half of the keys behind them; kernels spare all, and in the backward
# pass compute the scores again, splash twice, and the gradient of the weights.
PRODUCTS = {"reference": 6 * 3 / 4, "cudnn": (2 + 5) / 2, "splash": (2 + 4 + 3) / 2}


def _told(arguments):
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    command = [sys.executable, "-m", "bss", "compile", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "on", "devices", "attention"),
    [
        ("jax_plugins.xla_cuda13", "h100:1", 1, "reference"),
        ("nvidia.cudnn", "h100:1", 1, "cudnn"),
        ("jax_plugins.xla_cuda13", "h200:8", 8, "reference"),
        ("libtpu", "v5e:1x1", 1, "reference"),
        ("libtpu", "v5e:2x4", 8, "splash"),
    ],
)
def test_absent_machines_make_the_products_of_the_model_and_one_sum(
    compiler, on, devices, attention, tmp_path
):
    pytest.importorskip(compiler)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"run": to_dict(RUN), "execution": {"buckets": [16]}}))
    told = _told([str(file), "--on", on, "--attention", attention])
    assert (told["machine"], told["devices"], told["fits"]) == (on, devices, True)
    train = told["programs"][0]
    product = 2 * MODEL.num_layers * 256 * MODEL.d_model  # of attention; PRODUCTS are made, of six
    made = MODEL.training_flops_per_token(256) + (PRODUCTS[attention] - 6) * product
    assert train["flops"] == pytest.approx(made * 16 * 256 / devices, rel=0.03)
    assert (train["uncounted"], train["attention"]) == ([], attention)
    assert not any(one["in_loop"] for one in train["collectives"])
    moved = sum(one["bytes"] for one in train["collectives"])
    expected = 4 * MODEL.counts().total if devices > 1 else 0
    assert 0 <= moved - expected <= 8
    assert 0 < train["bound"]["mfu"] < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "on"), [("jax_plugins.xla_cuda13", "h100:1"), ("libtpu", "v5e:1x1")]
)
def test_mixtures_make_the_products_of_their_tokens_and_padding(compiler, on, tmp_path):
    pytest.importorskip(compiler)
    model = MixtureConfig(512, 2, 128, 2, 256, dtype="bfloat16", num_experts=8, top_k=2)
    file, run = tmp_path / "run.json", dataclasses.replace(RUN, model=model)
    file.write_text(json.dumps({"run": to_dict(run), "execution": {"buckets": [16]}}))
    train = _told([str(file), "--on", on, "--attention", "reference"])["programs"][0]
    attention = 2 * model.num_layers * 256 * model.d_model
    expert = 2 * 2 * model.d_model * model.mlp_width * model.num_layers  # forward, of a token
    more = 3 * (model.padding(16 * 256) - 1) * expert
    made = model.training_flops_per_token(256) + (PRODUCTS["reference"] - 6) * attention + more
    assert train["flops"] == pytest.approx(made * 16 * 256, rel=0.05)
    assert train["uncounted"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "on", "whole"),
    [
        ("jax_plugins.xla_cuda13", "h100:8", False),
        ("jax_plugins.xla_cuda13", "h100:8", True),
        ("libtpu", "v5e:2x4", False),
    ],
)
def test_absent_machines_gather_in_bfloat16_what_they_split(compiler, on, whole, tmp_path):
    pytest.importorskip(compiler)
    file, model = tmp_path / "run.json", dataclasses.replace(MODEL, remat=True)
    run = to_dict(dataclasses.replace(RUN, model=model))
    file.write_text(json.dumps({"run": run, "execution": {"buckets": [16]}}))
    options = ["--fsdp", "4", *(["--whole-gradient"] if whole else [])]
    train = _told([str(file), "--on", on, "--attention", "reference", *options])["programs"][0]
    layers, ends = model.num_layers * 12 * model.d_model**2, 2 * model.vocab_size * model.d_model
    moved = {(one["kind"], one["in_loop"]): one["bytes"] for one in train["collectives"]}
    gathered = sum(size for (kind, _), size in moved.items() if kind == "all-gather")
    assert gathered == 2 * (2 * layers + ends)  # forward, and again for remat and the backward pass
    assert train["uncounted"] == []
    if compiler != "libtpu":  # whose compiler chooses sums for some of them
        assert moved["reduce-scatter", not whole] == 4 * (layers + ends) / 4
        split = train["state_bytes"] - 4 * 2
        assert split == pytest.approx(4 * 3 * model.counts().total / 4, rel=0.01)
