"""Stands for a Slurm cluster: a controller in a thread, and the commands that a script finds.

Jobs are processes of this machine; nodes are names. A second of the cluster may be shorter than a
second. At a job's time limit, less the lead of its `--signal`, its batch shell is told, and all of
it is killed at the limit. It knows what the scripts of `bss.sweeps.slurm` use, and nothing else.
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

COMMANDS = ("sbatch", "squeue", "scontrol", "srun")
LOOK_SECONDS = 0.02
KILL_SECONDS = 5  # between a step's SIGTERM and its SIGKILL

Job = dict[str, Any]


class Cluster:
    """The nodes and their queue, for a `with` block.

    Attributes:
        path: a folder of the commands, for PATH.
        events: what happened: ("start", "limit", "kill", "requeue", "node" or "end", the job).
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 4,
        second: float = 1.0,
        largest_array: int = 1001,
        begun: Callable[[Job], int] = lambda job: 0,
    ):
        """Writes the commands.

        Args:
            folder: of all that it writes.
            nodes: how many.
            second: of the cluster, in seconds.
            largest_array: MaxArraySize.
            begun: a job's time begins when this is more than at its start; at once where it is 0.
        """
        self.path, self.events = folder / "bin", []
        self.dead: set[str] = set()
        self._folder, self._second, self._begun = folder, second, begun
        self._nodes = [f"node{i}" for i in range(1, nodes + 1)]
        self._running: dict[int, tuple[Job, subprocess.Popen]] = {}
        self._ended = threading.Event()
        for each in (self.path, folder / "jobs", folder / "requeue", folder / "tasks"):
            each.mkdir(parents=True)
        (folder / "most").write_text(str(largest_array))
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

    def told(self, what: str) -> list[Job]:
        """The jobs to which this happened."""
        return [job for event, job in self.events if event == what]

    def tasks(self, job: int) -> dict[str, int]:
        """The process of each task of a job, by its node."""
        found = (self._folder / "tasks").glob(f"{job}-*")
        return {path.name.partition("-")[2]: int(path.read_text() or 0) for path in found}

    def _control(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for job, process in [*self._running.values()]:
                self._look(job, process)
            jobs = _jobs(self._folder)
            left = {job["array"] for job in jobs if job["state"] != "ended"}
            for job in jobs:
                free = [n for n in self._nodes if n not in self.dead | self._used()]
                waits = job["state"] != "pending" or left & {*job["behind"]}
                if not waits and len(free) >= job["nodes"]:
                    self._start(job, free[: job["nodes"]])

    def _used(self) -> set[str]:
        return {node for job, _ in self._running.values() for node in job["on"]}

    def _note(self, what: str, job: Job) -> None:
        self.events.append((what, dict(job)))

    def _start(self, job: Job, nodes: list[str]) -> None:
        job |= {"state": "running", "on": nodes, "stood": self._begun(job)}
        job |= {"began": None if job["stood"] else time.monotonic(), "told": False}
        variables = {
            "SLURM_JOB_ID": job["id"],
            "SLURM_ARRAY_JOB_ID": job["array"],
            "SLURM_ARRAY_TASK_ID": job["task"],
            "SLURM_JOB_NODELIST": ",".join(nodes),
        }
        here = os.environ | {name: str(value) for name, value in variables.items()}
        here["PATH"] = f"{self.path}:{here['PATH']}"
        log = job["log"].replace("%A", str(job["array"])).replace("%a", str(job["task"]))
        with open(log, "a") as output:
            process = subprocess.Popen(
                ["bash", job["script"], *job["arguments"]],
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
        if lost:
            self._kill(job, process)
            self._note("node", job)
        if process.poll() is not None:
            self._end(job, process, requeue=bool(lost))
            return
        if job["began"] is None and self._begun(job) > job["stood"]:
            job["began"] = time.monotonic()
        if job["began"] is None or job["limit"] is None:
            return
        passed = (time.monotonic() - job["began"]) / self._second
        if passed > job["limit"]:
            self._kill(job, process)
            self._note("kill", job)
        elif passed > job["limit"] - job["lead"] and not job["told"]:
            job["told"] = True
            self._note("limit", job)
            process.send_signal(job["signal"])  # of "B:", to the batch shell alone

    def _end(self, job: Job, process: subprocess.Popen, *, requeue: bool) -> None:
        asked = self._folder / "requeue" / str(job["id"])
        requeue = (requeue or asked.exists()) and job["requeue"]
        asked.unlink(missing_ok=True)
        for path in (self._folder / "tasks").glob(f"{job['id']}-*"):
            path.unlink()
        del self._running[job["id"]]
        job |= {"state": "pending" if requeue else "ended", "status": process.returncode, "on": []}
        self._put(job)
        self._note("requeue" if requeue else "end", job)

    def _kill(self, job: Job, process: subprocess.Popen) -> None:
        for each in [process.pid, *self.tasks(job["id"]).values()]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each, signal.SIGKILL)
        process.wait()

    def _put(self, job: Job) -> None:
        _write(self._folder / "jobs" / f"{job['id']}.json", json.dumps(job))


def _jobs(folder: Path) -> list[Job]:
    paths = sorted((folder / "jobs").glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def _write(path: Path, text: str) -> None:
    """Replaces a file at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def _seconds(text: str) -> int:
    """A time limit: minutes, minutes:seconds or hours:minutes:seconds."""
    parts = [int(part) for part in text.split(":")]
    parts = [0, *parts, 0] if len(parts) == 1 else [0, *parts] if len(parts) == 2 else parts
    return parts[0] * 3600 + parts[1] * 60 + parts[2]


def sbatch(folder: Path, *arguments: str) -> int:
    """Puts an array in the queue; a partition other than "here" is refused."""
    given = [one for one in arguments if one.startswith("--")]
    script, *rest = arguments[len(given) :]
    text = Path(script).read_text()
    options = [*re.findall(r"^#SBATCH (\S+)", text, re.MULTILINE), *given]
    asked = {name: value for name, _, value in (one.partition("=") for one in options)}
    if asked.get("--partition", "here") != "here":
        print("sbatch: error: invalid partition specified", file=sys.stderr)
        return 1
    first, last = map(int, asked["--array"].split("-"))
    if last >= int((folder / "most").read_text()):
        print("sbatch: error: Invalid job array specification", file=sys.stderr)
        return 1
    number, lead = asked["--signal"].removeprefix("B:").split("@")
    with open(folder / "most") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        array = max([100, *(job["id"] for job in _jobs(folder))]) + 1
        for task in range(first, last + 1):
            job = {
                "id": array + task - first,
                "array": array,
                "task": task,
                "state": "pending",
                "script": script,
                "arguments": rest,
                "log": asked["--output"],
                "nodes": int(asked.get("--nodes", 1)),
                "limit": _seconds(asked["--time"]) if "--time" in asked else None,
                "signal": signal.Signals[f"SIG{number}"],
                "lead": int(lead),
                "requeue": "--requeue" in asked,
                "behind": [int(i) for i in asked.get("--dependency", "").split(":")[1:]],
            }
            _write(folder / "jobs" / f"{job['id']}.json", json.dumps(job))
    print(array)
    return 0


def squeue(folder: Path, *arguments: str) -> int:
    """The arrays that are in the queue; no other question is known."""
    assert arguments == ("--noheader", "--me", "--format=%F")
    for job in _jobs(folder):
        if job["state"] != "ended":
            print(job["array"])
    return 0


def scontrol(folder: Path, verb: str, *arguments: str) -> int:
    """The size of arrays, a node's address, or a job again."""
    if verb == "requeue":
        (folder / "requeue" / arguments[0]).touch()
    elif arguments == ("config",):
        print(f"MaxArraySize            = {(folder / 'most').read_text()}")
    else:
        assert arguments[0] == "hostnames"
        with contextlib.suppress(BrokenPipeError):  # of `head`
            print("\n".join("127.0.0.1" for _ in arguments[1].split(",")), flush=True)
    return 0


def srun(folder: Path, kill: str, *command: str) -> int:
    """A task on each node; where one ends badly the others are ended."""
    assert kill == "--kill-on-bad-exit=1"
    started: list[subprocess.Popen] = []
    for number, node in enumerate(os.environ["SLURM_JOB_NODELIST"].split(",")):
        here = os.environ | {"SLURM_PROCID": str(number)}
        started.append(subprocess.Popen(command, env=here, start_new_session=True))
        name = f"{os.environ['SLURM_JOB_ID']}-{node}"
        _write(folder / "tasks" / name, str(started[-1].pid))

    def pass_on(number: int, _: object) -> None:
        for task in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(task.pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    deadline = float("inf")
    while None in (statuses := [task.poll() for task in started]):
        if any(statuses) and deadline == float("inf"):
            deadline = time.monotonic() + KILL_SECONDS
            pass_on(signal.SIGTERM, None)
        if time.monotonic() > deadline:
            pass_on(signal.SIGKILL, None)
        time.sleep(LOOK_SECONDS)
    return max(128 - status if status < 0 else status for status in statuses if status is not None)


if __name__ == "__main__":
    called = {command.__name__: command for command in (sbatch, squeue, scontrol, srun)}
    sys.exit(called[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:]))
