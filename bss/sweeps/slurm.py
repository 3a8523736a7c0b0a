"""The Slurm engine: a job per run, submitted and queued again by submitit.

Before its time limit a job saves. It is queued again if it has advanced since it started. Slurm
requeues jobs of a lost node, and a failed job is submitted again. An interrupt leaves the jobs in
the queue, and the same command continues with them.
"""

import io
import os
import shlex
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from bss.errors import InputError, check
from bss.files import read_json, write_json
from bss.sweeps.engine import QueueEngine, WorkerLost
from bss.sweeps.setup import EngineConfig, processes_per_run
from bss.training.checkpoint import saved
from bss.training.distributed import (
    DistributedConfig,
    Interrupted,
    initialized,
    is_primary,
    log_primary,
)
from bss.training.run_config import RunConfig
from bss.training.worker import Job, train_job
from bss.values import from_dict

if TYPE_CHECKING:
    import submitit

_LARGEST_ARRAY = 1000
_SAVE_SECONDS = 120
_INIT_SECONDS = 300
_RUNNING = ("PENDING", "RUNNING", "REQUEUED", "SUSPENDED", "COMPLETING", "CONFIGURING")


def import_submitit() -> Any:
    """Import submitit without its logging set-up, which would close the handlers of others."""
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    import submitit

    return submitit


class SlurmEngine(QueueEngine):
    """Trains runs as jobs of a Slurm cluster."""

    def __init__(self, config: EngineConfig) -> None:
        """Read the options of `sbatch`; raise InputError if this machine cannot submit jobs."""
        super().__init__(config)
        self._options = _sbatch_options(config.slurm)
        self.accelerators = any("gpu" in f"{name} {x}" for name, x in self._options.items())
        self._jobs: list[tuple[Future[str], submitit.Job[str]]] = []
        if import_submitit().SlurmExecutor.affinity() < 0:
            raise InputError("engine slurm: srun not found; start the sweep on a login node")

    def free(self) -> None:
        """Return None: the cluster has a queue."""

    def submit(self, jobs: Sequence[Job]) -> list["Future[str]"]:
        """Submit jobs in arrays, except those that are in the cluster's queue already."""
        folder = Path(jobs[0]["execution"]["runs"]).absolute() / "jobs"
        queued = [_queued(folder, job) for job in jobs]
        started = {i: job for i, job in enumerate(queued) if job}
        by_width: dict[int, list[int]] = {}
        for i, job in enumerate(jobs):
            if i not in started:
                run = from_dict(RunConfig, next(iter(job["runs"].values())))
                width = processes_per_run(self.config.processes, run)
                by_width.setdefault(width, []).append(i)
        for processes, indices in by_width.items():
            for first in range(0, len(indices), _LARGEST_ARRAY):
                part = indices[first : first + _LARGEST_ARRAY]
                array = self._submit_array(folder, [jobs[i] for i in part], processes)
                started |= zip(part, array, strict=True)
        futures = [Future[str]() for _ in jobs]
        self._jobs += [(futures[i], job) for i, job in started.items()]
        return futures

    def poll(self) -> None:
        """Read the results of the jobs that have ended."""
        for future, job in [*self._jobs]:
            if not job.done():
                continue
            self._jobs.remove((future, job))
            error = job.exception()
            if error is None:
                future.set_result(str(job.task(0).result()))
            else:
                lost = f"Slurm job {job.job_id} ended ({job.state}); see {job.task(0).paths.stderr}"
                future.set_exception(WorkerLost(lost))

    def stop(self) -> None:
        """Leave the jobs in the queue."""
        if self._jobs:
            log_primary(f"{len(self._jobs)} jobs stay in the queue of Slurm")
        self._jobs.clear()

    def _submit_array(
        self, folder: Path, jobs: Sequence[Job], processes: int
    ) -> Sequence["submitit.Job[str]"]:
        submitit = import_submitit()
        executor = submitit.SlurmExecutor(folder, max_num_timeout=1_000_000)
        executor.update_parameters(
            job_name="bss",
            nodes=processes,
            ntasks_per_node=1,
            signal_delay_s=_SAVE_SECONDS,
            srun_args=["--kill-on-bad-exit=1"],
            additional_parameters={"requeue": True, **self._options},
        )
        try:
            with redirect_stderr(io.StringIO()):  # the error has it too
                array = executor.map_array(TrainOnSlurm(), jobs)
        except submitit.core.utils.FailedJobError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"setup.engine.slurm {self.config.slurm!r}: {reason}") from None
        for job, submitted in zip(jobs, array, strict=True):
            record = {"job": submitted.job_id, "processes": processes}
            for run in job["runs"]:
                write_json(folder / f"{run}.json", record)
        return array


def _queued(folder: Path, job: Job) -> "submitit.Job[str] | None":
    """Return the job of an earlier call that trains the same runs, if it is in the queue."""
    try:
        records = [read_json(folder / f"{run}.json", "") for run in job["runs"]]
    except InputError:
        return None
    if any(record != records[0] for record in records):
        return None
    known = import_submitit().SlurmJob(folder, records[0]["job"], range(records[0]["processes"]))
    queued = known.watcher.get_state(known.job_id) in _RUNNING and not known.done()
    return known if queued else None


class TrainOnSlurm:
    """The function of a job, with submitit's protocol to save and be queued again."""

    def __call__(self, job: Job) -> str:
        """Return the result of a job; see `train_job`."""
        self._stop = Event()
        self._saved = _checkpoints(job)
        self._training = ThreadPoolExecutor(1).submit(_train, job, self._stop)
        return self._training.result()  # signals arrive in this thread

    def checkpoint(self, job: Job) -> "submitit.helpers.DelayedSubmission | None":
        """Save; return the job for its next turn, None if it has not advanced in this one."""
        self._stop.set()
        with suppress(Interrupted):
            self._training.result()
        advanced = _checkpoints(job) != self._saved or not self._training.exception()
        delayed = import_submitit().helpers.DelayedSubmission
        return delayed(TrainOnSlurm(), job) if advanced else None


def _train(job: Job, stop: Event) -> str:
    """Train a job in all processes of it."""
    here = import_submitit().JobEnvironment()
    place = DistributedConfig()
    if here.num_tasks > 1:
        first = f"{here.hostnames[0]}:{int(here.raw_job_id) % 20000 + 40000}"
        place = DistributedConfig(here.num_tasks, first, here.global_rank, _INIT_SECONDS)
    with initialized(place):
        try:
            return train_job(job, stop)
        except Interrupted:
            if is_primary():
                raise
            return ""  # the first process queues the job again


def _checkpoints(job: Job) -> list[list[str]]:
    return [saved(Path(job["execution"]["runs"]) / run) for run in job["runs"]]


def _sbatch_options(text: str) -> dict[str, Any]:
    """Parse "--partition=gpu --exclusive"."""
    options: dict[str, Any] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        check(name.startswith("--"), "setup.engine.slurm", text, '"--partition=gpu --time=60"')
        options[name[2:]] = value if equals else True
    return options
