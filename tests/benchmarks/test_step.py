"""The step beside its rivals: one model in all, and a table that says what the JSON holds."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks.step import plain
from benchmarks.step.__main__ import BENCHMARK
from benchmarks.step.shapes import SHAPES, TINY, batches
from bss.models.sizes import named


@pytest.mark.slow
def test_plain_flax_is_our_model():
    config = dataclasses.replace(named("pico"), num_layers=2)
    params, model = config.init(0), plain.Transformer(config, nnx.Rngs(0))
    model.embedding.embedding[...] = params["embedding"]
    model.head.kernel[...] = params["head"]["kernel"]
    model.norm.scale[...] = 2 * params["final_norm"]["scale"]
    params["final_norm"]["scale"] *= 2
    for i, block in enumerate(model.blocks):
        layer = params[f"layer_{i}"]
        for name in ("query", "key", "value", "output"):
            getattr(block, name).kernel[...] = layer["attention"][name]["kernel"]
        for name in ("up", "down"):
            getattr(block, name).kernel[...] = layer["mlp"][name]["kernel"]
    sequences = jnp.asarray(batches(TINY["pico"], config.vocab_size)[0])
    expected, _ = jax.jit(config.loss)(params, sequences)
    targets = sequences.shape[0] * (sequences.shape[1] - 1)
    assert float(jax.jit(plain.loss_of)(model, sequences)) == pytest.approx(
        float(expected) / targets, abs=1e-5
    )


def test_the_torch_rival_is_our_model():
    torch = pytest.importorskip("torch")
    from benchmarks.step.torch_rival import Transformer

    config = dataclasses.replace(named("pico"), num_layers=2)
    params, model = config.init(0), Transformer(config, 16)
    state = {"embedding.weight": params["embedding"], "head.weight": params["head"]["kernel"].T}
    for i in range(config.num_layers):
        attention, mlp = (params[f"layer_{i}"][part] for part in ("attention", "mlp"))
        heads = [attention[name]["kernel"].T for name in ("query", "key", "value")]
        own = {"qkv": np.concatenate(heads), "output": attention["output"]["kernel"].T}
        own |= {name: mlp[name]["kernel"].T for name in ("up", "down")}
        state |= {f"blocks.{i}.{name}.weight": matrix for name, matrix in own.items()}
    tensors = {name: torch.tensor(np.asarray(matrix)) for name, matrix in state.items()}
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    sequences = batches(TINY["pico"], config.vocab_size)[0]
    expected, _ = config.loss(params, jnp.asarray(sequences))
    targets = sequences.shape[0] * (sequences.shape[1] - 1)
    with torch.no_grad():
        loss = model(torch.from_numpy(sequences).long())
    assert float(loss) == pytest.approx(float(expected) / targets, abs=1e-5)


def planted_race(variants, cores, seconds, most):
    """Ours take a second, and every other one more than the one before."""
    times = {one.name: [1.0 + max(i - 1, 0), 1.0 + max(i - 1, 0)] for i, one in enumerate(variants)}
    told = {name: {"seconds": x, "cpu": [[1, 0]], "warm": 5.5} for name, x in times.items()}
    more = {"rounds": 2, "product_gflops": [100.0, 100.0], "others_cpu": 0.0}
    return {"variants": told, **more}


@pytest.fixture
def measured(monkeypatch, tmp_path, capsys):
    """What the command prints and writes, with a race whose times are planted."""
    monkeypatch.setattr("benchmarks.step.__main__.race", planted_race)
    monkeypatch.setattr("benchmarks.step.__main__.gpus", list)
    monkeypatch.setattr("benchmarks.command.present_cores", lambda: [0])

    def run(*arguments):
        assert BENCHMARK.main([*arguments, "--results", str(tmp_path)]) == 0
        return capsys.readouterr().out, json.loads((tmp_path / "step.json").read_text())

    return run


def test_the_table_says_what_the_json_holds_and_what_was_not_measured(measured, monkeypatch):
    monkeypatch.setattr("benchmarks.step.__main__.installed", lambda name: None)
    out, result = measured("--shapes", "d 64 B 1, 85M")
    assert {"command", "commit", "date", "device", "versions"} <= result.keys()
    first, second, gpu = result["table"]
    assert first["ratios"] == {
        f"{name} / flax": {"median": 2, "low": 2, "high": 2} for name in ("1 step", "8 steps")
    }
    assert first["variants"]["1 step"]["tokens_per_second"] == 64
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    assert ["d 64 B 1", "1", "8 steps", "64", *"––", "2.00 [2.00, 2.00]"] == lines[4][:7]
    assert second["not_measured"] == "this process may use 1"
    for note in (
        "d 64 B 1 on 2 cores: not measured: this process may use 1",
        "85M: not measured: no NVIDIA GPU is here",
        "compile: not measured: torch is not installed; pip install 'batch-size-scaling[torch]'",
    ):
        assert note in out.splitlines()
    assert gpu == {"shape": "85M", "not_measured": "no NVIDIA GPU is here"}


def test_rivals_of_torch_run_where_it_is(measured, monkeypatch):
    monkeypatch.setattr("benchmarks.step.__main__.installed", lambda name: "2.13")
    _, result = measured("--shapes", "pico", "--cores", "1")
    names = ["1 step", "8 steps", "eager", "compile", "flax"]
    assert [*result["table"][0]["variants"]] == names
    assert result["table"][0]["ratios"]["1 step / compile"]["median"] == 3


def test_a_gpu_has_each_rival_beside_one_of_ours(measured, monkeypatch):
    monkeypatch.setattr("benchmarks.step.__main__.installed", lambda name: "2.13")
    monkeypatch.setattr("benchmarks.step.__main__.gpus", lambda: ["0"])
    monkeypatch.setattr("benchmarks.command.gpu_users", lambda: "others use the GPUs: 3 GB")
    out, result = measured("--shapes", "302M")
    (row,) = result["table"]
    assert [*row["ratios"]] == ["1 step / eager", "1 step / compile", "1 step / flax"]
    assert "others use the GPUs: 3 GB" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--shapes", "d 65"], f"--shapes: 'd 65' is none of {', '.join(SHAPES)}"),
        (["--cores", "one"], "--cores: 'one'; write numbers of 1 or more, e.g. 1,2, or all"),
        (["--cores", "0"], "--cores: '0'; write numbers of 1 or more, e.g. 1,2, or all"),
        (["--seconds", "0"], "--seconds: 0; write a positive number"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments, told, capsys):
    assert BENCHMARK.main(arguments) == 2
    assert capsys.readouterr().err == f"benchmarks.step: {told}\n"


def test_tokens_of_all_variants_are_the_same_and_too_many_to_learn():
    for shape in SHAPES.values():
        assert shape.several == 1 or len(batches(shape, 256)) % shape.several == 0
    first, again = (batches(SHAPES["d 64 B 8"], 256) for _ in range(2))
    assert np.array_equal(first, again) and first.shape == (512, 8, 65)
