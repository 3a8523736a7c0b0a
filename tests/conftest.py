"""Every test runs on two forced CPU devices, with implicit rank promotion an error.

Most of the time would go into compiling: programs are compiled each in one piece, with few
optimisations where they solve for a law and with none elsewhere, and shared between the workers of
a session and the processes that tests start, which have one device. What was imported is not looked
through again whenever garbage is collected. BLAS has one thread: matrices are small, and threads of
several workers would wait for each other, which cost up to 20 times the work.
"""

import atexit
import ctypes
import dataclasses
import gc
import json
import os
import random
import shutil
import sys
import tempfile

from tests.xla_flags import flags_of_session

os.environ["XLA_FLAGS"] = flags_of_session(
    "--xla_backend_optimization_level=1",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when numpy is imported, which is below
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import hypothesis
import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a worker inherits that of the first process
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.local_devices(backend="cpu")  # now: a command that a test calls could open fewer

hypothesis.settings.register_profile("few", max_examples=30, deadline=None)
hypothesis.settings.load_profile("few")

pytest_plugins = ("tests.planted", "tests.drawn")


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


SOLVING = {
    "laws",
    "theory",
    "policies",
    "advice",
    "cli",
    "report",
    "benchmarks",
    "docs",
    "experiments",
}


def pytest_runtest_setup(item):
    """Optimise programs a little where most of the time goes into solving for laws."""
    folders = item.path.relative_to(item.config.rootpath).parts
    jax.config.update("jax_disable_most_optimizations", not SOLVING & {*folders[:2]})


def folder_of(item):
    """The first two folders of a file of tests, e.g. tests/laws."""
    return item.path.relative_to(item.config.rootpath).parent.parts[:2]


def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs behind each folder of tests, so that a worker stays small."""
    if nextitem and folder_of(nextitem) != folder_of(item):
        jax.clear_caches()
        if cache := sys.modules.get("bss.training.program_cache"):
            cache.PROGRAMS.clear()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def reads_back():
    """Checks that a printed fit is read back as it was; other keys do not matter."""
    from bss.cli.output import finite

    def check(kind, printed):
        fit = kind.from_dict(printed)
        again = json.loads(json.dumps(finite(fit.to_dict()), allow_nan=False))
        assert {key: printed.get(key) for key in again} == again
        return fit

    return check


@pytest.fixture(scope="session")
def tiny_shards(tmp_path_factory):
    """Byte tokens of a tiny corpus: three hundred documents of random words."""
    from bss.data.local_files import PythonFiles
    from bss.data.prepare import prepare

    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 6))) for _ in range(60)]
    for i in range(300):
        (folder / f"{i:03d}.py").write_text(" ".join(draw.choices(words, k=250)))
    return prepare(PythonFiles(folder), root=tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def tiny_transformer(tiny_shards):
    """A run of one layer of width 16: 128 steps through two batch changes."""
    from bss.models.transformer import TransformerConfig
    from bss.schedules.batch import BatchSchedule
    from bss.schedules.config import ScheduleConfig
    from bss.training.optimizers import AdamW
    from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig

    return RunConfig(
        TransformerConfig(tiny_shards.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32),
        DataConfig(content=tiny_shards.content_hash, seq_len=16),
        AdamW(lr=1e-2, weight_decay=0.01),
        ScheduleConfig(8192, BatchSchedule((0, 1024, 4096), (2, 4, 8)), warmup=512),
        EvaluationConfig(tokens=20 * 16, per_efold=4, first=500),
    )


@pytest.fixture(scope="session")
def tiny_run(tiny_transformer):
    """The same run with a model that is quick to trace and compile: one matrix product."""
    from tests.models.bigram import Bigram

    return dataclasses.replace(tiny_transformer, model=Bigram(tiny_transformer.model.vocab_size))


@pytest.fixture(scope="session")
def execution_in(tiny_shards):
    """Makes the execution of tiny runs in a folder: one device, two buckets.

    Checkpoints are at fork points and at the end only.
    """
    from bss.training.execution import Execution

    def execution(folder, forks=()):
        return Execution(
            runs=str(folder),
            data=str(tiny_shards.directory),
            buckets=(2, 4),
            devices=1,
            checkpoint_seconds=1e9,
            forks=forks,
            evaluation_bucket=8,
        )

    return execution


@pytest.fixture
def tiny_execution(execution_in, tmp_path):
    """The execution of a test's own, step by step: a test says behind which one it stops."""
    return dataclasses.replace(execution_in(tmp_path / "runs"), steps_per_dispatch=1)


@pytest.fixture(scope="session")
def planted_curves():
    """A functional scaling law of SGD as a fit, and run tables whose losses follow a law."""
    from tests.planted_curves import planted_curves

    return planted_curves()
