"""What several processes make of some jobs, as one JSON file of each process.

    python -m tests.training.many_processes FOLDER --processes 2 --coordinator HOST:PORT --process 0

FOLDER/jobs.json lists {"run", "execution", "stop", "batch"}: a list of executions has one for each
process, `stop` says which process is asked to stop, after how many steps; of a `batch` (position,
count, capacity, bucket) the rows are made, and nothing trained. FOLDER/PROCESS.json tells of each
job its status or its mistake, and the positions of the sequences that the process made.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import numpy as np

from bss.data import synthetic
from bss.data.stream import Stream
from bss.errors import InputError
from bss.training.batches import open_source
from bss.training.distributed import DistributedConfig, initialized
from bss.training.execution import Execution
from bss.training.loop import Interrupted, train
from bss.training.run_config import RunConfig
from bss.training.sharding import make_mesh
from bss.values import from_dict, to_dict
from tests.training.conftest import StopAfter

MADE: list[int] = []


def noted(make, positions_of):
    """A function that makes sequences, and notes their positions."""

    def making(*asked):
        MADE.extend(map(int, positions_of(asked)))
        return make(*asked)

    return making


def outcome(job: dict) -> dict:
    """What becomes of a job in this process."""
    MADE.clear()
    execution, (stopped, steps) = job["execution"], job.get("stop", (None, 0))
    if isinstance(execution, list):
        execution = execution[jax.process_index()]
    stop = StopAfter(steps if jax.process_index() == stopped else float("inf"))
    run, execution, told = from_dict(RunConfig, job["run"]), from_dict(Execution, execution), {}
    try:
        if batch := job.get("batch"):
            made = open_source(run, Path(execution.data), make_mesh()).batch(*batch)
            told["rows"] = [np.asarray(shard.data).tolist() for shard in made.addressable_shards]
        else:
            status = train(run, execution, stop=stop)  # pyrefly: ignore[bad-argument-type]
            told["status"] = to_dict(status)
    except Interrupted as interrupted:
        told["interrupted"] = str(interrupted)
    except InputError as error:
        told["mistake"] = str(error)
    return told | {"made": MADE.copy(), "devices": jax.device_count()}


def main() -> int:
    """Do the jobs as one of the processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--coordinator", default="")
    parser.add_argument("--process", type=int)
    options = parser.parse_args()
    for place in (Stream, synthetic):
        setattr(place, "at", noted(place.at, lambda asked: asked[1]))  # noqa: B010
    config = DistributedConfig(options.processes, options.coordinator, options.process)
    with initialized(config):
        jobs = json.loads((options.folder / "jobs.json").read_text())
        told = [outcome(job) for job in jobs]
        (options.folder / f"{jax.process_index()}.json").write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
