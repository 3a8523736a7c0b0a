"""A run on this package's own sources, for benchmarks that train: their shards are quickly made."""

import atexit
import tempfile
from pathlib import Path

from bss.data.prepare import prepare
from bss.models.sizes import named
from bss.schedules.config import ScheduleConfig
from bss.training.execution import Execution, use_compilation_cache
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig

SOURCES = Path(__file__).parents[1] / "bss"


def scratch() -> Path:
    """Return a folder that goes with the process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


def run_on_sources(
    folder: Path, model: str, seq_len: int, schedule: ScheduleConfig
) -> tuple[RunConfig, Execution]:
    """Return a run that is evaluated at its end, and how it is executed: all that it writes in a
    folder.

    It reads the sources over and over, saves at its end only, and compiles into the folder's cache.
    """
    shards = prepare(f"files:{SOURCES}/**/*.py", "bytes", folder / "data")
    data = DataConfig(content=shards.content_hash, seq_len=seq_len, repeat=True)
    evaluation = EvaluationConfig(8 * seq_len, first=schedule.tokens)
    run = RunConfig(named(model), data, schedule=schedule, evaluation=evaluation)
    execution = Execution(
        str(folder / "runs"),
        data=str(shards.directory),
        compilation_cache=str(folder / "compiled"),
        checkpoint_seconds=1e9,
    )
    use_compilation_cache(execution)
    return run, execution
