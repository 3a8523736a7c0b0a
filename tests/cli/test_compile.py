"""bss compile: a run on forced devices of this CPU, as on a device of little memory."""

import json
import shutil

import jax
import pytest

from bss.cli import compile as command
from bss.cli import main
from bss.machines.absent import Machine
from bss.machines.program import Bound, Memory
from bss.machines.targets import Target
from bss.training.aot.compiled import Examined
from bss.training.config import RunConfig
from bss.values import from_dict, to_dict
from tests.cli.called import printed, refused

KEYS = {"bucket", "state_bytes", "temp_bytes", "peak_bytes", "fits", "flops", "bytes"}
KEYS |= {"collectives", "attention", "bound", "expected", "compile_seconds"}


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


@pytest.fixture
def run_file(tiny_run, tmp_path):
    file = tmp_path / "run.json"
    job = {"run": to_dict(tiny_run), "execution": {"buckets": [2, 4], "evaluation_bucket": 8}}
    file.write_text(json.dumps(job))
    return file


def test_every_program_of_a_run_on_two_devices(tiny_run, run_file, capsys):
    told = printed(capsys, "compile", str(run_file), "--on", "cpu:2")
    assert (told["machine"], told["devices"], told["fits"]) == ("cpu:2", 2, None)
    programs = {(p["program"], p["bucket"]): p for p in told["programs"]}
    assert list(programs) == [("train", 2), ("train", 4), ("evaluation", 16)]
    counts, seq_len = tiny_run.model.counts(), tiny_run.data.seq_len
    for (_, bucket), program in list(programs.items())[:2]:
        assert program.keys() >= KEYS
        assert program["state_bytes"] == 4 * (3 * counts.total + 2)  # two moments, two weights
        assert program["peak_bytes"] > program["state_bytes"] + program["temp_bytes"]
        (sum_,) = program["collectives"]
        assert (sum_["kind"], sum_["in_loop"]) == ("all-reduce", False)
        assert 0 <= sum_["bytes"] - 4 * counts.total <= 8
        # The first half of the queries does not meet the second half of the keys.
        model = tiny_run.model
        spared = 3 * 2 * 2 * model.num_layers * seq_len * model.d_model / 4
        formula = model.training_flops_per_token(seq_len) - spared
        assert program["flops"] == pytest.approx(formula * bucket * seq_len / 2, rel=0.03)
    assert programs["evaluation", 16]["flops"] > 0
    assert {program["attention"] for program in told["programs"]} == {"reference"}


def test_weights_that_two_devices_split_are_gathered_and_their_gradients_summed(
    tiny_run, tmp_path, capsys
):
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"run": to_dict(tiny_run), "execution": {"buckets": [2]}}))
    told = printed(capsys, "compile", str(file), "--on", "cpu:2", "--fsdp", "2")
    train, evaluation = told["programs"]
    model = tiny_run.model
    matrices = 4 * 16 * 16 + 2 * 16 * 32 + 2 * 16 * model.vocab_size
    vectors = model.counts().total - matrices
    assert train["state_bytes"] == 4 * (3 * (matrices / 2 + vectors) + 2)
    for program, meet in ((train, {"reduce-scatter": 4 * matrices / 2}), (evaluation, {})):
        moved = dict.fromkeys(("all-gather", "reduce-scatter", "all-reduce"), 0)
        for one in program["collectives"]:
            moved[one["kind"]] += one["bytes"]
        assert moved["all-gather"] == 4 * matrices  # once: there is no remat
        assert moved["reduce-scatter"] == meet.get("reduce-scatter", 0)
        assert 0 < moved["all-reduce"] <= 4 * (vectors + 80)  # and scalars, two norms a tensor
    refusal = refused(capsys, "compile", str(file), "--on", "cpu:2", "--fsdp", "4")
    assert "execution.fsdp is 4; 2 devices of cpu hold meshes of fsdp 1, 2: use one" in refusal


@pytest.fixture
def small_device(monkeypatch):
    """A CPU as a device of a little memory, and a peak and a bandwidth."""

    def make(memory):
        target = Target("small", (), memory, 1e9, 1e12)
        found = Machine("small:1", target, jax.local_devices()[:1], memory)
        monkeypatch.setattr(command, "machine", lambda _: found)

    return make


def test_what_does_not_fit_is_told_with_what_remat_needs(run_file, small_device, capsys):
    small_device(50_000)
    assert main(["compile", str(run_file), "--on", "small:1", "--json"]) == 2
    out, error = capsys.readouterr()
    told = json.loads(out)
    assert told["fits"] is False
    assert [p["fits"] for p in told["programs"]] == [False] * 3
    assert {p["bound"]["by"] for p in told["programs"]} == {"memory"}
    assert error.startswith("bss compile: does not fit small:1: 1x16, train in buckets of 4, needs")
    assert "; bucket 2 with remat needs" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("held", "found"),
    [(10, (None, None)), (25, (1, 2)), (160, (8, 16)), (210, (16, 32)), (1e3, (64, 128))],
)
def test_fit_finds_the_largest_bucket(held, found, run_file, small_device, capsys, monkeypatch):
    """Of planted memory: 15 bytes, 10 for each sequence (remat: 5), and 30 more from 16 on."""

    def planted(run, bucket, *_):
        peak = 15 + (5 if run.model.remat else 10) * bucket + 30 * (bucket >= 16)
        memory = Memory(0, peak, peak, peak <= held)
        return Examined("train", bucket, memory, None, Bound(1.0, bucket, 1.0, "memory"), 0.0)

    small_device(held)
    monkeypatch.setattr("bss.training.aot.largest.one_bucket", planted)
    monkeypatch.setattr("bss.training.aot.compiled.examine", lambda *_: [])
    told = printed(capsys, "compile", str(run_file), "--on", "small:1", "--fit")
    assert [(one["remat"], one["bucket"]) for one in told["largest"]] == [
        (False, found[0]),
        (True, found[1]),
    ]


def test_a_config_names_models_lengths_and_buckets(capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "bss.training.aot.compiled.examine",
        lambda run, capacity, *_: seen.append((run, dict(capacity))) or [],
    )
    printed(capsys, "compile", "--config", "configs/critical_batch.py:paper", "--on", "cpu:1")
    assert [run.model.num_layers for run, _ in seen] == [12, 12, 24, 12, 24, 12, 12, 12]
    assert {tuple(capacity) for _, capacity in seen} == {(8, 16, 32, 64)}
    assert [run.data.seq_len for run, _ in seen] == [*[512] * 5, 1024, 2048, 4096]
    seen.clear()
    printed(capsys, "compile", "--config", "configs/train.py:nano", "--on", "cpu:1")
    assert seen == [(from_dict(RunConfig, to_dict(seen[0][0])), {8: 1, 16: 1})]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["x.json", "--on", "v9:2x2"], "--on v9:2x2: no machine that is known; expected cpu:N"),
        (["x.json", "--on", "h100:9"], "--on h100:9: no machine that is known"),
        (["x.json", "--on", "cpu:3"], "--on cpu:3: this process has started with 2 devices"),
        (["x.json", "--on", "h100:1"], "pip install 'batch-size-scaling[aot-gpu]'"),
        (["x.json", "--on", "v5e:2x4"], "pip install 'batch-size-scaling[aot-tpu]'"),
        (["none.json", "--on", "h100:1"], "none.json: there is no such file"),
        (["x.json", "--on", "cpu:1", "--fit"], "--fit: the memory of cpu:1 is not known"),
        (["--on", "cpu:1"], "expected RUN.json or --config FILE:SIZE, one of them"),
        (["--config", "configs/none.py", "--on", "cpu:1"], "none.py: there is no such file"),
        (["--config", "configs/es_wsd.py:huge", "--on", "cpu:1"], "size 'huge': expected one of"),
    ],
)
def test_bad_input_is_one_line(arguments, told, capsys, monkeypatch, tmp_path):
    shutil.copytree("configs", tmp_path / "configs")
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert told in refused(capsys, "compile", *arguments)


def test_an_attention_kernel_is_asked_for_by_name(run_file, capsys):
    asked = ["compile", str(run_file), "--on", "cpu:1", "--attention"]
    told = refused(capsys, *asked, "splash")
    assert "execution.attention: splash needs a TPU, not cpu; ask for reference" in told
    assert "'cudn' is unknown; did you mean 'cudnn'?" in refused(capsys, *asked, "cudn")


def test_a_bucket_that_does_not_divide_is_told(tiny_run, tmp_path, capsys):
    file = tmp_path / "run.json"
    run = {**to_dict(tiny_run), "schedule": {"batch": "3", "tokens": 4800}}
    file.write_text(json.dumps({"run": run, "execution": {"buckets": [3]}}))
    told = refused(capsys, "compile", str(file), "--on", "cpu:2")
    assert "bucket 3 cannot be split over 2 devices; use buckets that are multiples of 2" in told
