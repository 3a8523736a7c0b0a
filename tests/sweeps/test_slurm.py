"""The Slurm engine on a fake cluster: arrays, limits, lost nodes and tasks, refusals."""

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from bss.errors import InputError
from bss.sweeps import engine, slurm
from bss.sweeps.engines import ENGINES
from bss.sweeps.grid import overlay
from bss.sweeps.setup import EngineConfig
from bss.sweeps.slurm import SlurmEngine, import_submitit
from bss.training.run_config import Parent
from bss.training.run_directory import CURVE, RunStatus, open_run, read_status
from bss.training.worker import Job
from tests.sweeps.fake_slurm import Cluster

submitit = import_submitit()


def test_engines_by_name():
    assert ENGINES["slurm"] is SlurmEngine
    with pytest.raises(InputError, match="engine: 'rai' is unknown; did you mean 'ray'"):
        ENGINES["rai"]


def test_a_machine_without_slurm_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="srun"):
        SlurmEngine(EngineConfig())


def test_options_of_sbatch_are_options(monkeypatch):
    with pytest.raises(InputError, match=r"setup\.engine\.slurm"):
        SlurmEngine(EngineConfig(slurm="partition=gpu"))


def test_a_bucket_of_a_cloud_is_no_place_for_runs():
    for runs in ("gs://bucket/runs", "s3:/bucket/runs"):
        with pytest.raises(
            InputError, match=f"runs is {runs}, which is not a directory; mount a vol"
        ):
            EngineConfig(runs=runs).execution()


def train_job(job: Job, stop: threading.Event) -> str:
    """Train nothing: wait for the signal in the first turn, finish in the second."""
    from bss.training.distributed import Interrupted

    for name, run in job["runs"].items():
        directory = Path(job["execution"]["runs"]) / name
        checkpoints = directory / "checkpoints"
        if run["seed"] == 1 and not checkpoints.exists():
            checkpoints.mkdir(parents=True)
            stop.wait(60)
            (checkpoints / "64").mkdir()
            raise Interrupted("saved")
        if run["seed"] == 2:
            stop.wait(60)
            raise Interrupted("nothing to save")
        if run["seed"] == 3:
            return "no such data"
        if run["seed"] == 4 and not directory.exists():
            directory.mkdir(parents=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if run["seed"] == 5 and not (directory / "first").exists():
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "first").touch()
            stop.wait(60)
        with open_run(directory) as opened:
            opened.write_status(RunStatus("finished", 64))
    return ""


@pytest.fixture
def cluster(tmp_path, monkeypatch, tiny_execution):
    """A fake cluster, whose jobs train nothing; their time begins when they do."""

    def turns(job) -> int:
        file = Path(tiny_execution.runs) / f"turns-{job['id']}"
        return 1 + (file.stat().st_size if file.exists() else 0)

    with Cluster(tmp_path / "slurm", nodes=2, second=0.05, begun=turns) as made:
        monkeypatch.setenv("PATH", f"{made.path}:{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        monkeypatch.setattr(engine, "_POLL_SECONDS", 0.1)
        monkeypatch.setattr(
            submitit.SlurmJob, "watcher", submitit.slurm.slurm.SlurmInfoWatcher(delay_s=5)
        )
        monkeypatch.setattr(slurm, "train_job", train_job)
        monkeypatch.setattr(slurm, "TrainOnSlurm", FakeTraining)
        yield made


class FakeTraining(slurm.TrainOnSlurm):
    """A job that trains nothing, in its process."""

    def __call__(self, job: Job) -> str:
        slurm.train_job = train_job
        with open(Path(job["execution"]["runs"]) / f"turns-{os.environ['SLURM_JOB_ID']}", "a") as f:
            f.write(".")
        return super().__call__(job)

    def checkpoint(self, job: Job):
        """Queue a job of this class again."""
        again = super().checkpoint(job)
        return again and submitit.helpers.DelayedSubmission(FakeTraining(), job)


LIMIT = "--time=2:30"


def trained(runs, execution, **config):
    with SlurmEngine(EngineConfig(slurm=LIMIT, **config)) as made:
        statuses = made.train(runs, execution)
    return [statuses[run.id] for run in runs]


def seeded(run, *seeds):
    return [overlay(run, {"seed": seed}) for seed in seeds]


@pytest.mark.slow
def test_a_branch_is_submitted_when_its_parent_has_finished(tiny_run, tiny_execution, cluster):
    trunk = overlay(tiny_run, {"schedule.tokens": 2048})
    branch = overlay(tiny_run, {"schedule.tokens": 3072, "schedule.decay": 1024})
    branch = dataclasses.replace(branch, parent=Parent(trunk.id, 2048))
    other = overlay(tiny_run, {"seed": 3})
    statuses = trained([branch, other, trunk], tiny_execution)
    assert [one.status for one in statuses] == ["finished", "failed", "finished"]
    assert statuses[1].message == "no such data"
    started = cluster.jobs("start")
    assert [job["array"] is None for job in started] == [False, False, True]


@pytest.mark.slow
def test_a_job_that_has_advanced_is_queued_again_at_its_limit(tiny_run, tiny_execution, cluster):
    (status,) = trained(seeded(tiny_run, 1), tiny_execution, retries=0)
    assert status.status == "finished"
    assert [event for event, _ in cluster.events][:4] == ["start", "limit", "requeue", "start"]


@pytest.mark.slow
def test_a_job_that_has_not_advanced_fails(tiny_run, tiny_execution, cluster):
    (status,) = trained(seeded(tiny_run, 2), tiny_execution, retries=0)
    assert status.status == "failed"
    assert "Slurm job" in status.message
    assert not cluster.jobs("requeue")


@pytest.mark.slow
def test_a_killed_task_is_submitted_again(tiny_run, tiny_execution, cluster):
    with pytest.warns(RuntimeWarning, match=r"Slurm job .* ended \(FAILED\).*again \(1 of 1\)"):
        (status,) = trained(seeded(tiny_run, 4), tiny_execution, retries=1)
    assert status.status == "finished"


@pytest.mark.slow
def test_a_job_on_a_lost_node_is_queued_again(tiny_run, tiny_execution, cluster):
    def lose():
        while not (started := cluster.jobs("start")):
            time.sleep(0.05)
        (run,) = seeded(tiny_run, 5)
        while not (Path(tiny_execution.runs) / run.id / "first").exists():
            time.sleep(0.05)
        cluster.dead.update(started[0]["on"])

    losing = threading.Thread(target=lose)
    losing.start()
    (status,) = trained(seeded(tiny_run, 5), tiny_execution, retries=0)
    losing.join()
    assert status.status == "finished"
    assert len({job["on"][0] for job in cluster.jobs("start")}) == 2


def test_a_refused_job_is_one_line_in_the_clusters_words(tiny_run, tiny_execution, cluster, capfd):
    options = f"{LIMIT} --partition=nowhere"
    with (
        SlurmEngine(EngineConfig(slurm=options)) as made,
        pytest.raises(InputError) as refused,
    ):
        made.train([tiny_run], tiny_execution)
    assert "invalid partition specified: nowhere" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_sweep_that_is_called_again_continues_with_its_jobs(
    tiny_run, tiny_execution, cluster, monkeypatch
):
    runs = seeded(tiny_run, 1, 0)

    def interrupt(*_):
        if cluster.jobs("start"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SlurmEngine, "poll", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trained(runs, tiny_execution)
    assert [one.status for one in trained(runs, tiny_execution)] == ["finished"] * 2
    assert len({job["id"] for job in cluster.jobs("start")}) == 2


SETUP = {
    "model": "pico",
    "text": {"corpus": "files:texts/*.txt", "seq_len": 64},
    "schedule": {"rate": "wsd", "warmup": "2K", "tokens": 14_000},
    "evaluation": {"tokens": "1024", "per_efold": 2, "first": "4K"},
    "engine": {"processes": "0:1 20K:2", "devices": 1, "slurm": "--time=2:00", "retries": 4},
}  # the time in which a job saves: it is signalled when its curve grows, on a machine of any speed
NODES = 3
AXES = [
    {"schedule.batch": 2, "seed": 0},
    {"schedule.batch": 16, "seed": 1},
    {"schedule.batch": 16, "model.num_layers": 2},  # trained on two nodes
]


@pytest.fixture
def unattended(tmp_path):
    """Start a sweep of these axes on a cluster; return its process."""
    started = []

    def start(cluster, axes):
        config = {"title": "Unattended", "engine": "slurm", "setup": SETUP, "axes": axes}
        config |= {"resamples": 10, "targets": 2}
        (tmp_path / "sweep.json").write_text(json.dumps(config))
        draw = random.Random(0)
        (tmp_path / "texts").mkdir()
        for i in range(300):
            words = " ".join("".join(draw.choices("abcdefgh", k=4)) for _ in range(300))
            (tmp_path / f"texts/{i}.txt").write_text(words)
        process = subprocess.Popen(
            [sys.executable, "-m", "bss", "sweep", "sweep.json", "--out", "out"],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{cluster.path}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_of(folder: Path, job) -> str:
    """Return the run of a fake cluster's job."""
    name = str(job["id"]) if job["array"] is None else f"{job['array']}_{job['task']}"
    for record in (folder / "out/runs/jobs").glob("*.json"):
        if json.loads(record.read_text())["job"] == name:
            return record.stem
    return ""


def finals_of(process, folder: Path, cluster, runs: int, seconds: float) -> pd.DataFrame:
    """Return the final numbers of a sweep that has ended, with a report and whole curves."""
    output, _ = process.communicate(timeout=seconds)
    logs = "\n".join(path.read_text()[-2000:] for path in (folder / "out/runs/jobs").glob("*.err"))
    assert process.returncode == 0, f"{output}\n{logs}\n{[e for e, _ in cluster.events]}"
    assert (folder / "out/report.html").is_file(), output
    finals = pd.read_csv(folder / "out/finals.csv")
    assert len(finals) == runs
    table = pd.read_parquet(folder / "out/runs.parquet")
    for run, rows in table.groupby("run"):
        assert read_status(folder / f"out/runs/{run}").finished
        assert rows["step"].is_monotonic_increasing and rows["step"].is_unique
    return finals


@pytest.mark.slow
def test_a_sweep_with_limits_and_a_killed_node_ends_with_all_curves(unattended, tmp_path):
    """The runs want four nodes; there are three, and two behind the death of one."""

    def rows(job) -> int:
        """Return 1 plus the bytes of a run's curve: the time of a start does not count."""
        curve = tmp_path / "out/runs" / run_of(tmp_path, job) / CURVE
        return 1 + (curve.stat().st_size if curve.is_file() else 0)

    with Cluster(tmp_path / "slurm", nodes=NODES, second=0.2, begun=rows) as cluster:
        sweep = unattended(cluster, AXES)
        while not (wide := [job for job in cluster.jobs("limit") if job["nodes"] == 2]):
            assert sweep.poll() is None, sweep.communicate()
            time.sleep(0.1)
        cluster.dead.add(wide[0]["on"][1])
        finals = finals_of(sweep, tmp_path, cluster, len(AXES), 1500)
    cuts = Counter(job["id"] for job in cluster.jobs("limit"))
    widths = {job["id"]: job["nodes"] for job in cluster.jobs("start")}
    assert Counter(widths.values())[2] == sum("model.num_layers" in one for one in AXES)
    assert cluster.jobs("requeue") and cuts
    assert len(finals) == len(AXES)
