"""Every test runs on two forced CPU devices, with implicit rank promotion an error."""

import os
import random

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def tiny_shards(tmp_path_factory):
    """Byte tokens of a tiny corpus: three hundred documents of random words."""
    from bss.data.prepare import prepare

    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 6))) for _ in range(60)]
    for i in range(300):
        (folder / f"{i:03d}.py").write_text(" ".join(draw.choices(words, k=250)))
    return prepare("files", root=tmp_path_factory.mktemp("data"), roots=[folder])


@pytest.fixture(scope="session")
def tiny_run(tiny_shards):
    """A run of a second: one layer of width 16, 128 steps through two batch changes."""
    from bss.models.config import ModelConfig
    from bss.training.config import (
        DataConfig,
        EvaluationConfig,
        OptimizerConfig,
        RunConfig,
        ScheduleConfig,
    )

    return RunConfig(
        ModelConfig(tiny_shards.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32),
        DataConfig(content=tiny_shards.content_hash, seq_len=16),
        OptimizerConfig(lr=1e-2, weight_decay=0.01),
        ScheduleConfig(tokens=8192, batch="0:2 1024:4 4096:8", warmup=512),
        EvaluationConfig(tokens=20 * 16, per_efold=4, first=500),
    )


@pytest.fixture
def tiny_execution(tiny_shards, compilation_cache, tmp_path):
    """One device, two buckets, checkpoints at fork points and at the end only."""
    from bss.training.execution import Execution

    return Execution(
        runs=str(tmp_path / "runs"),
        data=str(tiny_shards.directory),
        buckets=(2, 4),
        devices=1,
        checkpoint_seconds=1e9,
        evaluation_bucket=8,
        compilation_cache=str(compilation_cache),
    )


@pytest.fixture(scope="session")
def compilation_cache(tmp_path_factory):
    """Compiled programs of the tiny runs, shared with the processes that tests start."""
    folder = tmp_path_factory.mktemp("compiled")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    return folder
