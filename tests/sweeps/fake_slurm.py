"""A fake Slurm cluster: a controller in a thread, and the commands that submitit calls.

Jobs are processes of this machine; nodes are loopback addresses. A second of the cluster may be
shorter than a second. Before a job's time limit, by the lead of its `--signal`, its tasks get the
signal; at the limit they are killed. It knows what submitit uses, and nothing else.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "sacct", "scontrol", "srun")
LOOK_SECONDS = 0.05
STATES = {"pending": "PENDING", "running": "RUNNING"}

Job = dict[str, Any]


class Cluster:
    """The nodes and their queue, for a `with` block.

    Attributes:
        path: a folder of the commands, for PATH.
        events: what happened: ("start", "limit", "kill", "requeue", "node" or "end", the job).
        dead: nodes that were lost.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 4,
        second: float = 1.0,
        begun: Callable[[Job], int] = lambda job: 0,
    ):
        """Write the commands.

        Args:
            folder: of all files.
            nodes: number of nodes.
            second: of the cluster, in seconds.
            begun: a job's time begins when this is more than at its start; at once where it is 0.
        """
        self.path, self.events = folder / "bin", []
        self.dead: set[str] = set()
        self._folder, self._second, self._begun = folder, second, begun
        self._nodes = [f"127.0.0.{i}" for i in range(1, nodes + 1)]
        self._running: dict[int, tuple[Job, subprocess.Popen]] = {}
        self._ended = threading.Event()
        for each in (self.path, folder / "jobs", folder / "requeue", folder / "tasks"):
            each.mkdir(parents=True)
        (folder / "lock").touch()
        for name in COMMANDS:
            call = [sys.executable, "-S", __file__, str(folder), name]
            (self.path / name).write_text(f'#!/bin/bash\nexec {shlex.join(call)} "$@"\n')
            (self.path / name).chmod(0o755)

    def __enter__(self) -> "Cluster":
        self._thread = threading.Thread(target=self._control)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()
        for job, process in self._running.values():
            self._kill(job, process)

    def jobs(self, what: str) -> list[Job]:
        """Return the jobs to which this happened."""
        return [job for event, job in self.events if event == what]

    def _control(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for job, process in [*self._running.values()]:
                self._look(job, process)
            for job in _jobs(self._folder):
                free = [n for n in self._nodes if n not in self.dead | self._used()]
                if job["state"] == "pending" and len(free) >= job["nodes"]:
                    self._start(job, free[: job["nodes"]])

    def _used(self) -> set[str]:
        return {node for job, _ in self._running.values() for node in job["on"]}

    def _note(self, what: str, job: Job) -> None:
        self.events.append((what, dict(job)))

    def _start(self, job: Job, nodes: list[str]) -> None:
        job |= {"state": "running", "on": nodes, "stood": self._begun(job)}
        job |= {"began": None if job["stood"] else time.monotonic(), "signalled": False}
        variables = {
            "SLURM_JOB_ID": job["id"],
            "SLURM_JOB_NUM_NODES": len(nodes),
            "SLURM_NTASKS": len(nodes),
            "SLURM_JOB_NODELIST": ",".join(nodes),
        }
        if job["array"] is not None:
            variables |= {"SLURM_ARRAY_JOB_ID": job["array"], "SLURM_ARRAY_TASK_ID": job["task"]}
        here = os.environ | {name: str(value) for name, value in variables.items()}
        here["PATH"] = f"{self.path}:{here['PATH']}"
        with open(self._folder / f"batch-{job['id']}.log", "a") as output:
            process = subprocess.Popen(
                ["bash", job["script"]],
                cwd=job["directory"],
                stdout=output,
                stderr=output,
                env=here,
                start_new_session=True,
            )
        self._running[job["id"]] = job, process
        self._put(job)
        self._note("start", job)

    def _look(self, job: Job, process: subprocess.Popen) -> None:
        lost = self.dead & {*job["on"]}
        requeued = self._folder / "requeue" / _name(job)
        if lost:
            self._kill(job, process)
            self._note("node", job)
        if process.poll() is not None:
            requeue = bool(lost) or requeued.exists()
            requeued.unlink(missing_ok=True)
            self._end(job, process, requeue=requeue and job["requeue"])
            return
        if job["began"] is None and self._begun(job) > job["stood"]:
            job["began"] = time.monotonic()
        if job["began"] is None or job["limit"] is None:
            return
        passed = (time.monotonic() - job["began"]) / self._second
        if passed > job["limit"]:
            self._kill(job, process)
            self._note("kill", job)
        elif passed > job["limit"] - job["lead"] and not job["signalled"]:
            job["signalled"] = True
            self._note("limit", job)
            for task in self._tasks(job):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(task, signal.Signals[job["signal"]])

    def _tasks(self, job: Job) -> list[int]:
        return [int(path.read_text()) for path in (self._folder / "tasks").glob(f"{job['id']}-*")]

    def _end(self, job: Job, process: subprocess.Popen, *, requeue: bool) -> None:
        for path in (self._folder / "tasks").glob(f"{job['id']}-*"):
            path.unlink()
        del self._running[job["id"]]
        job |= {"state": "pending" if requeue else "ended", "status": process.returncode, "on": []}
        self._put(job)
        self._note("requeue" if requeue else "end", job)

    def _kill(self, job: Job, process: subprocess.Popen) -> None:
        for each in [process.pid, *self._tasks(job)]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each, signal.SIGKILL)
        process.wait()

    def _put(self, job: Job) -> None:
        _write(self._folder / "jobs" / f"{job['id']}.json", json.dumps(job))


def _jobs(folder: Path) -> list[Job]:
    paths = sorted((folder / "jobs").glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def _name(job: Job) -> str:
    """Return the name by which a job is requested, e.g. "101_3" in an array."""
    return str(job["id"]) if job["array"] is None else f"{job['array']}_{job['task']}"


def _write(path: Path, text: str) -> None:
    """Replace a file at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def _seconds(text: str) -> int:
    """Parse a time limit: minutes, minutes:seconds or hours:minutes:seconds."""
    parts = [int(part) for part in text.split(":")]
    parts = [0, *parts, 0] if len(parts) == 1 else [0, *parts] if len(parts) == 2 else parts
    return parts[0] * 3600 + parts[1] * 60 + parts[2]


def sbatch(folder: Path, script: str) -> int:
    """Queue a job or an array; a partition other than "here" is refused."""
    options = re.findall(r"^#SBATCH --(\S+)$", Path(script).read_text(), re.MULTILINE)
    given = {name: value for name, _, value in (one.partition("=") for one in options)}
    if given.get("partition", "here") != "here":
        print("sbatch: error: invalid partition specified: " + given["partition"], file=sys.stderr)
        print("sbatch: error: Batch job submission failed", file=sys.stderr)
        return 1
    last = int(given.get("array", "0-0").partition("%")[0].partition("-")[2])
    number, _, lead = given["signal"].partition("@")
    with open(folder / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = max([100, *(job["id"] for job in _jobs(folder))]) + 1
        kept = folder / f"script-{first}.sh"  # submitit moves its own
        kept.write_text(Path(script).read_text())
        for task in range(last + 1):
            job = {
                "id": first + task,
                "array": first if "array" in given else None,
                "task": task,
                "state": "pending",
                "directory": os.getcwd(),
                "script": str(kept),
                "nodes": int(given["nodes"]),
                "limit": _seconds(given["time"]),
                "signal": f"SIG{number}",
                "lead": int(lead),
                "requeue": "requeue" in given,
            }
            _write(folder / "jobs" / f"{job['id']}.json", json.dumps(job))
    print(f"Submitted batch job {first}")
    return 0


def sacct(folder: Path, *arguments: str) -> int:
    """Print the states of jobs."""
    assert arguments[:3] == ("-o", "JobID,State,NodeList", "--parsable2"), arguments
    wanted = arguments[4::2]
    print("JobID|State|NodeList")
    for job in _jobs(folder):
        ended = "COMPLETED" if job.get("status") == 0 else "FAILED"
        if _name(job).partition("_")[0] in wanted:
            print(f"{_name(job)}|{STATES.get(job['state'], ended)}|node")
    return 0


def scontrol(folder: Path, verb: str, job: str) -> int:
    """Queue a job again when it has ended."""
    assert verb == "requeue"
    (folder / "requeue" / job).touch()
    return 0


def srun(folder: Path, *arguments: str) -> int:
    """Run a task on each node; if one fails, the others are killed."""
    command, options, here = [*arguments], {}, os.environ
    while command[0].startswith("--"):
        option = command.pop(0)
        options[option] = command.pop(0) if option in ("--output", "--error") else ""
    names = {"%A": "SLURM_ARRAY_JOB_ID", "%a": "SLURM_ARRAY_TASK_ID", "%j": "SLURM_JOB_ID"}
    for tag, name in names.items():
        options = {o: path.replace(tag, here.get(name, tag)) for o, path in options.items()}
    started: list[subprocess.Popen] = []
    for number, node in enumerate(here["SLURM_JOB_NODELIST"].split(",")):
        place = {"SLURM_PROCID": number, "SLURM_NODEID": number, "SLURM_LOCALID": 0}
        own = here | {name: str(value) for name, value in place.items()}
        out, error = (options[o].replace("%t", str(number)) for o in ("--output", "--error"))
        with open(out, "a") as stdout, open(error, "a") as stderr:
            started.append(
                subprocess.Popen(
                    command, stdout=stdout, stderr=stderr, env=own, start_new_session=True
                )
            )
        _write(folder / "tasks" / f"{here['SLURM_JOB_ID']}-{node}", str(started[-1].pid))
    while None in (statuses := [task.poll() for task in started]):
        if any(statuses):
            time.sleep(1)
            for task in started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    return max(128 - status if status < 0 else status for status in statuses if status is not None)


if __name__ == "__main__":
    called = {command.__name__: command for command in (sbatch, sacct, scontrol, srun)}
    sys.exit(called[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:]))
