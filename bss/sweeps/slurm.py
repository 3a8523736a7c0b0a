"""The files engine: configs for `bss train` and a Slurm array, for machines that it cannot reach.

It trains nothing. The experiment is run again when the array is done: finished runs are read, and
what they make possible is written next.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bss.errors import check
from bss.files import write_json, write_text
from bss.sweeps.engine import Engine
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Queue, Statuses, waves
from bss.sweeps.setup import EngineConfig
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.values import to_dict

_WAVE = """\
#!/bin/bash
#SBATCH --job-name=bss
#SBATCH --array=0-{last}
#SBATCH --output={logs}/slurm-%A-%a.log
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
# Run {last} is the shortest. Two minutes before its time is up a run is told to save and leave.
set -euo pipefail
cd {directory}
runs=({runs})
exec {python} -m bss train {jobs}/"${{runs[$SLURM_ARRAY_TASK_ID]}}".json
"""
_SUBMIT = """\
#!/bin/bash
# Submits the arrays, each behind the one that holds its parents. Options are handed to sbatch.
set -euo pipefail
"""


class Written(Exception):
    """Runs are written, and not trained: says how they are, and what to do then."""


class FilesEngine(Engine):
    """Writes what is left to train, and leaves by `Written`."""

    def __init__(self, config: EngineConfig):
        """Refuses a fleet, which no array job trains."""
        super().__init__(config)
        one = "1: engine files trains a run by itself"
        check(config.fleet <= 1, "setup.engine.fleet", config.fleet, one)

    def train(
        self, runs: Sequence[RunConfig], execution: Execution, progress: Progress | None = None
    ) -> Statuses:
        """Statuses where nothing is left to train; else files under `execution.runs`/jobs.

        Raises:
            Written: of the runs that are left.
        """
        queue = Queue(runs, execution, Progress("runs", quiet=True))
        queue.skip()
        if not queue.waiting:
            return queue.statuses
        jobs = Path(execution.runs).absolute() / "jobs"
        (jobs.parent / "logs").mkdir(parents=True, exist_ok=True)
        jobs.mkdir(exist_ok=True)
        for run in queue.waiting:
            job = {"run": to_dict(run), "execution": asdict(execution)}
            write_json(jobs / f"{run.id}.json", job)
        submit = _write_scripts(jobs, waves(queue.waiting))
        done = len(queue.statuses)
        raise Written(
            f"{len(queue.waiting)} runs to train, {done} done; submit them: bash {submit}; "
            "then run the same command again"
        )


def _write_scripts(jobs: Path, parts: Sequence[Sequence[RunConfig]]) -> Path:
    """Writes an array for each part, and the script that submits them; returns the latter."""
    lines, behind = [_SUBMIT], ""
    for i, part in enumerate(parts):
        script = jobs / f"wave-{i}.sh"
        text = _WAVE.format(
            last=len(part) - 1,
            logs=jobs.parent / "logs",
            directory=shlex.quote(os.getcwd()),
            python=shlex.quote(sys.executable),
            jobs=shlex.quote(str(jobs)),
            runs=" ".join(run.id for run in part),
        )
        write_text(script, text)
        lines.append(f'job=$(sbatch --parsable{behind} "$@" {shlex.quote(str(script))})\n')
        lines.append('echo "submitted $job"\n')
        behind = ' --dependency=afterany:"$job"'
    write_text(jobs / "submit.sh", "".join(lines))
    return jobs / "submit.sh"
