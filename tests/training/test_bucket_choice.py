"""The micro-batch sizes of a run that names none."""

import dataclasses
import json
import warnings

import jax
import pytest

from bss.models.transformer import TransformerConfig
from bss.training import bucket_choice
from bss.training.bucket_choice import choose_buckets, core_cache, largest_bucket
from bss.training.hardware import machine_memory
from bss.training.loop import Interrupted, train
from bss.training.run_config import DataConfig, NoiseScaleConfig, RunConfig
from bss.training.run_directory import read_curve, read_executions, run_path
from bss.training.sharding import mesh_of
from tests.models.bigram import Bigram

MB = 1e6


def wide(width: int, layers: int, seq_len: int) -> RunConfig:
    model = TransformerConfig(256, layers, width, width // 32, 4 * width)
    return RunConfig(model, DataConfig(seq_len=seq_len))


@pytest.mark.parametrize(
    ("run", "cache", "cores", "most"),
    [
        (wide(128, 4, 128), 20 * MB, 1, 7),
        (wide(256, 6, 256), 20 * MB, 1, 4),
        (wide(512, 8, 256), 20 * MB, 1, 2),
        (wide(512, 8, 256), 20 * MB, 2, 4),
        (wide(512, 8, 256), 2 * MB, 1, 1),
        (wide(128, 4, 128), 20 * MB, 64, 32),
        (wide(128, 4, 128), None, 1, 32),
        (RunConfig(Bigram(256)), 20 * MB, 1, 32),  # what its layers keep is unknown
    ],
)
def test_sizes_follow_width_cache_and_cores(run, cache, cores, most):
    assert largest_bucket(run, 1, cache, cores) == most


def test_runs_of_one_program_share_the_cache():
    run = wide(512, 8, 256)
    assert largest_bucket(run, 2, 20 * MB, 1) == 1


def test_a_cache_is_divided_by_the_cores_that_share_it(tmp_path):
    for index, size, shared in (("0", "32K", "0"), ("2", "1024K", "0"), ("3", "16384K", "0-2,5")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
        (tmp_path / f"index{index}" / "shared_cpu_list").write_text(shared + "\n")
    assert core_cache(tmp_path) == 4 * 2**20


@pytest.mark.parametrize("written", [None, "", "unknown", "0K"])
def test_an_unknown_cache_is_told_and_the_sizes_are_those_of_other_devices(
    tmp_path, monkeypatch, tiny_execution, written
):
    if written is not None:
        (tmp_path / "index3").mkdir()
        (tmp_path / "index3" / "size").write_text(written)
        (tmp_path / "index3" / "shared_cpu_list").write_text("0")
    monkeypatch.setattr(bucket_choice, "core_cache", lambda: core_cache(tmp_path))
    free = dataclasses.replace(tiny_execution, buckets=(), evaluation_bucket=0)
    mesh = mesh_of(jax.local_devices()[:1])
    with pytest.warns(RuntimeWarning, match="the cache of this CPU is unknown"):
        chosen = choose_buckets(free, wide(128, 4, 128), mesh, {})
    assert (chosen.buckets, chosen.evaluation_bucket) == ((), 32)


def test_named_sizes_are_kept_and_nothing_is_looked_up(monkeypatch, tiny_run, tiny_execution):
    monkeypatch.setattr(bucket_choice, "core_cache", lambda: pytest.fail("looked up"))
    mesh = mesh_of(jax.local_devices()[:1])
    assert choose_buckets(tiny_execution, tiny_run, mesh, {}) is tiny_execution


def test_runs_that_measure_noise_keep_their_micro_batches(monkeypatch, tiny_execution):
    monkeypatch.setattr(bucket_choice, "core_cache", lambda: 20 * MB)
    monkeypatch.setattr(bucket_choice, "cores", lambda: 1)
    free = dataclasses.replace(tiny_execution, buckets=(), evaluation_bucket=0)
    run = dataclasses.replace(wide(128, 4, 128), noise_scale=NoiseScaleConfig(1000))
    chosen = choose_buckets(free, run, mesh_of(jax.local_devices()[:1]), {})
    assert (chosen.buckets, chosen.evaluation_bucket) == ((), 7)


@pytest.mark.parametrize(
    ("before", "devices", "sizes", "evaluated"),
    [
        ({"buckets": [], "evaluation_bucket": 32}, 1, (), 32),  # of a version without the choice
        ({"buckets": [1, 2, 3]}, 1, (1, 2, 3), 32),
        ({"buckets": [1, 2, 3], "evaluation_bucket": 3}, 2, (2,), 3),
        (
            {"buckets": [1], "evaluation_bucket": 1},
            2,
            tuple(range(2, 15, 2)),
            7,
        ),  # none of them fits
    ],
)
def test_a_run_keeps_the_sizes_of_its_last_start(
    monkeypatch, tiny_execution, before, devices, sizes, evaluated
):
    monkeypatch.setattr(bucket_choice, "core_cache", lambda: 20 * MB)
    monkeypatch.setattr(bucket_choice, "cores", lambda: 1)
    free = dataclasses.replace(tiny_execution, buckets=(), evaluation_bucket=0)
    mesh = mesh_of(jax.local_devices()[:devices])
    chosen = choose_buckets(free, wide(128, 4, 128), mesh, before)
    assert (chosen.buckets, chosen.evaluation_bucket) == (sizes, evaluated)


def test_a_resumed_run_equals_the_whole_one_on_a_machine_with_other_caches(
    monkeypatch, tiny_run, tiny_execution, stop_after
):
    free = dataclasses.replace(tiny_execution, buckets=(), evaluation_bucket=0)
    monkeypatch.setattr(bucket_choice, "largest_bucket", lambda *_: 1)
    other = dataclasses.replace(free, runs=free.runs + "-whole")
    train(tiny_run, other)
    with pytest.raises(Interrupted):
        train(tiny_run, free, stop=stop_after(20))
    monkeypatch.setattr(bucket_choice, "largest_bucket", lambda *_: 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a change of the execution is told
        train(tiny_run, free)
    path, whole = (run_path(one.runs, tiny_run) for one in (free, other))
    assert [record["buckets"] for record in read_executions(path)] == [[1], [1]]
    without = [[row | {"seconds": 0} for row in read_curve(one)] for one in (path, whole)]
    assert without[0] == without[1]
    assert json.loads((path / "execution.json").read_text())[0]["evaluation_bucket"] == 1


def test_the_memory_of_a_container_counts(tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("1000000\n")
    assert machine_memory(limit) == 1e6
    limit.write_text("max\n")
    assert machine_memory(limit) == machine_memory(tmp_path / "none") > 1e6
