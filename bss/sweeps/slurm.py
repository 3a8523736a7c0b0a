"""The files engine: configs for `bss train` and a Slurm array, for machines that it cannot reach.

It trains nothing. The experiment is run again when the array is done: finished runs are read, and
what they make possible is written next.
"""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bss.errors import check
from bss.files import write_json, write_text
from bss.sweeps.engine import Engine
from bss.sweeps.progress import Progress
from bss.sweeps.queue import Queue, Statuses, waves
from bss.sweeps.setup import EngineConfig
from bss.sweeps.widths import width
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus
from bss.values import to_dict

_WAVE = """\
#!/bin/bash
#SBATCH --job-name=bss
#SBATCH --output={logs}/slurm-%A-%a.log
#SBATCH --requeue
#SBATCH --signal=B:TERM@{lead}
{nodes}# So many seconds before its time is up a run saves; what has advanced is queued again.
set -uo pipefail
cd {directory}
runs=({runs})
run=${{runs[$((SLURM_ARRAY_TASK_ID + ${{1:-0}}))]}}
job={jobs}/$run
saved() {{ ls {root}/"$run"/checkpoints {root}/"$run"/forks 2> /dev/null; }}
before=$(saved)
{train} &
child=$!
trap 'kill -TERM $child' TERM
wait $child
status=$?
while kill -0 $child 2> /dev/null; do wait $child; status=$?; done
if [ $status = 143 ] && [ "$(saved)" != "$before" ]; then
    scontrol requeue "$SLURM_JOB_ID" || true  # else it is asked for again by the same command
    exit 0
fi
[ $status = 0 ] || echo "status $status in job $SLURM_JOB_ID, see {logs}" >> "$job.failed"
exit $status
"""
_ALONE = '{python} -m bss train "$job.json"'
_TOGETHER = """\
host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export place=$host:$((SLURM_JOB_ID % 20000 + 40000)) job
srun --kill-on-bad-exit=1 bash -c 'exec {python} -m bss train "$job.json" \\
    --processes={width} --coordinator="$place" --process="$SLURM_PROCID"'"""
_SUBMIT = """\
#!/bin/bash
# Submits the arrays, each behind those that hold its parents. Options are handed to sbatch, but
# --wait: with it this returns when all have ended.
set -euo pipefail
wait= options=() all= behind= next= told=$0.told
for option; do [ "$option" = --wait ] && wait=yes || options+=("$option"); done
most=$(scontrol show config 2> /dev/null | awk '$1 == "MaxArraySize" {print $3}') || true
most=${most:-1001}
submit() {  # a script, and how many runs it holds: in arrays as large as the cluster takes
    local first last job
    for ((first = 0; first < $2; first += most)); do
        last=$(($2 - first < most ? $2 - first - 1 : most - 1))
        job=$(sbatch --parsable $behind "${options[@]}" --array=0-$last "$1" $first 2> "$told") || {
            echo "sbatch refused $1 ${options[*]}: $(paste -sd ' ' "$told"); partitions: $(
                sinfo --noheader --format=%R 2> /dev/null | paste -sd ' '
            ); submitted before it:${all:- none}" | tr '\\n' ' ' | sed 's/ *$/\\n/' >&2
            exit 2
        }
        cat "$told" >&2
        job=${job%%;*}
        echo "submitted $job"
        all+=$'\\n'$job next+=:$job
    done
}
"""
_WAIT = """\
left() {  # where nobody answers, nothing has ended
    local queued
    queued=$(squeue --noheader --me --format=%F 2> /dev/null) || return 0
    grep -qxF "${all:1}" <<< "$queued"
}
[ -z "$wait" ] || while left; do sleep "${BSS_LOOK_SECONDS:-30}"; done
"""


_STEP_SECONDS = 120
_PROBE_BYTES = 2**24


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
        jobs = Path(execution.runs).absolute() / "jobs"
        self._give_up(queue, jobs)
        queue.skip()
        if not queue.waiting:
            return queue.statuses
        (jobs.parent / "logs").mkdir(parents=True, exist_ok=True)
        jobs.mkdir(exist_ok=True)
        for run in queue.waiting:
            job = {"run": to_dict(run), "execution": asdict(execution)}
            write_json(jobs / f"{run.id}.json", job)
        submit = _write_scripts(jobs, self._arrays(queue.waiting), _lead(jobs, queue.waiting))
        done = len(queue.statuses)
        raise Written(
            f"{len(queue.waiting)} runs to train, {done} done; submit them: bash {submit}; "
            "then run the same command again"
        )

    def _give_up(self, queue: Queue, jobs: Path) -> None:
        """Ends the runs whose jobs have failed more often than they are tried again."""
        for run in tuple(queue.waiting):
            file = jobs / f"{run.id}.failed"
            failures = file.read_text().splitlines() if file.exists() else []
            if len(failures) > self.config.retries:
                queue.waiting.remove(run)
                told = f"failed {len(failures)} times, last with {failures[-1]}"
                message = f"{told}; rm {file} to try again"
                queue.finish(run, RunStatus("failed", message=message))

    def _arrays(self, runs: Sequence[RunConfig]) -> list[dict[int, list[RunConfig]]]:
        """The runs of each wave, by how many processes train one."""
        arrays = []
        for wave in waves(runs):
            arrays.append(by_width := dict[int, list[RunConfig]]())
            for run in wave:
                by_width.setdefault(width(self.config.processes, run), []).append(run)
        return arrays


def _lead(jobs: Path, runs: Sequence[RunConfig]) -> int:
    """Seconds before its end in which a run is told to save: for the step, and for the save.

    The save is that of the largest state, four float32 a weight, at the speed of this file system,
    measured here, and four times that.
    """
    probe, block = jobs / f".probe-{os.getpid()}", bytes(_PROBE_BYTES)
    began = time.monotonic()
    try:
        with open(probe, "wb") as file:
            file.write(block)
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)
    seconds = time.monotonic() - began
    most = max((4 + len(run.averages)) * 4 * run.model.counts().total for run in runs)
    return _STEP_SECONDS + round(4 * most * seconds / _PROBE_BYTES)


def _write_scripts(jobs: Path, waves: Sequence[dict[int, list[RunConfig]]], lead: int) -> Path:
    """Writes arrays for each wave, and the script that submits them; returns the latter."""
    python, lines = shlex.quote(sys.executable), [_SUBMIT]
    for i, by_width in enumerate(waves):
        for processes, part in by_width.items():
            script = jobs / (f"wave-{i}.sh" if processes == 1 else f"wave-{i}-of-{processes}.sh")
            nodes = f"#SBATCH --nodes={processes}\n#SBATCH --ntasks-per-node=1\n"
            train = _ALONE if processes == 1 else _TOGETHER
            text = _WAVE.format(
                logs=jobs.parent / "logs",
                lead=lead,
                nodes=nodes if processes > 1 else "",
                directory=shlex.quote(os.getcwd()),
                jobs=shlex.quote(str(jobs)),
                root=shlex.quote(str(jobs.parent)),
                runs=" ".join(run.id for run in part),
                train=train.format(python=python, width=processes),
            )
            write_text(script, text)
            lines.append(f"submit {shlex.quote(str(script))} {len(part)}\n")
        lines.append("behind=--dependency=afterany$next next=\n")
    write_text(jobs / "submit.sh", "".join([*lines, _WAIT]))
    return jobs / "submit.sh"
