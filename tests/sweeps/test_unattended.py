"""A sweep that is given to Slurm ends by itself: limits, dead tasks and nodes, runs of two nodes.

Slurm is a fake one (`fake_slurm`), whose jobs are what the files engine writes.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from bss.sweeps.setup import EngineConfig
from bss.sweeps.slurm import FilesEngine, Written
from bss.training.run_directory import CURVE, read_status
from tests.sweeps.fake_slurm import Cluster

LOOP = """
until "$PYTHON" -m bss sweep sweep.json --out out
do [ $? = 75 ] && bash out/runs/jobs/submit.sh --wait --time="$LIMIT" || break; done
"""
SETUP = {
    "model": "pico",
    "text": {"corpus": "files:texts/*.txt", "seq_len": 64},
    "schedule": {"rate": "wsd", "warmup": "2K"},
    "evaluation": {"tokens": "1024", "per_efold": 2, "first": "4K"},  # a limit is behind a row
    "engine": {"processes": "0:1 20K:2", "devices": 1},
}


def run_of(job) -> str:
    """The run of a job."""
    runs = re.search(r"^runs=\((.*)\)$", Path(job["script"]).read_text(), re.MULTILINE)
    assert runs
    return runs[1].split()[job["task"] + int(job["arguments"][0])]


def written_of(job) -> int:
    """One more than the bytes of a run's curve: what starting takes is no time of the cluster."""
    curve = Path(job["script"]).parents[1] / run_of(job) / CURVE
    return 1 + (curve.stat().st_size if curve.exists() else 0)


@pytest.fixture
def unattended(tmp_path):
    """Begins the loop of a sweep of so many tokens a run, on a cluster; its process."""
    started = []

    def begin(cluster, tokens, axes, limit):
        setup = {**SETUP, "schedule": {**SETUP["schedule"], "tokens": tokens}}
        config = {"title": "Unattended", "engine": "files", "setup": setup, "axes": axes}
        config |= {"resamples": 10, "targets": 2}
        (tmp_path / "sweep.json").write_text(json.dumps(config))
        draw = random.Random(0)
        (tmp_path / "texts").mkdir()
        for i in range(300):
            words = " ".join("".join(draw.choices("abcdefgh", k=4)) for _ in range(300))
            (tmp_path / f"texts/{i}.txt").write_text(words)
        here = {
            "PATH": f"{cluster.path}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "LIMIT": limit,
            "BSS_LOOK_SECONDS": "0.2",
        }
        loop = subprocess.Popen(
            ["bash", "-c", LOOP],
            cwd=tmp_path,
            env=os.environ | here,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(loop)
        return loop

    yield begin
    for loop in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(loop.pid, signal.SIGKILL)
        loop.wait()


def ended(loop, folder, cluster, runs, seconds) -> pd.DataFrame:
    """The final numbers of a sweep whose loop has ended, with a report and whole curves."""
    told, _ = loop.communicate(timeout=seconds)
    logs = "\n".join(path.read_text() for path in (folder / "out/runs/logs").glob("slurm*"))
    assert loop.returncode == 0, f"{told}\n{logs}\n{cluster.events}"
    assert (folder / "out/report.html").is_file(), told
    finals = pd.read_csv(folder / "out/finals.csv")
    assert len(finals) == runs
    table = pd.read_parquet(folder / "out/runs.parquet")
    for run, rows in table.groupby("run"):
        assert read_status(folder / f"out/runs/{run}").finished
        assert rows["step"].is_monotonic_increasing and rows["step"].is_unique
    assert not [*(folder / "out/runs/jobs").glob("*.failed")]
    return finals


def limits(cluster) -> Counter:
    """How often each run was cut by its limit."""
    return Counter(run_of(job) for job in cluster.told("limit"))


@pytest.mark.slow
def test_runs_are_cut_by_their_limits_and_the_loop_ends_with_the_report(unattended, tmp_path):
    axes = [{"schedule.batch": 2}, {"schedule.batch": 4, "model.num_layers": 2}]
    with Cluster(tmp_path / "slurm", nodes=3, second=0.1, begun=written_of) as cluster:
        loop = unattended(cluster, 14_000, axes, "2:01")
        finals = ended(loop, tmp_path, cluster, 2, 120)
        cuts = limits(cluster)
    assert {*cuts} == {*finals["run"]}
    widths = {run_of(job): job["nodes"] for job in cluster.told("start")}
    assert sorted(widths.values()) == [1, 2]
    assert len(cluster.told("requeue")) >= 2


@pytest.mark.slow
def test_twelve_runs_each_cut_twice_and_four_of_two_nodes(unattended, tmp_path):
    small = [{"schedule.batch": b, "seed": seed} for b in (2, 4, 8, 16) for seed in (0, 1)]
    large = [{"schedule.batch": b, "model.num_layers": 2} for b in (2, 4, 8, 16)]
    with Cluster(
        tmp_path / "slurm", nodes=4, second=0.1, largest_array=5, begun=written_of
    ) as cluster:
        loop = unattended(cluster, 50_000, [*small, *large], "2:01")
        finals = ended(loop, tmp_path, cluster, 12, 1500)
        cuts = limits(cluster)
    print(cuts)
    widths = {run_of(job): job["nodes"] for job in cluster.told("start")}
    assert Counter(widths.values()) == {1: 8, 2: 4}
    assert {*cuts} == {*finals["run"]}
    assert min(cuts.values()) >= 2


TRAINS = """#!/bin/bash
name=$(basename "$4" .json); saves=RUNS/$name/checkpoints; mkdir -p $saves
trap 'mkdir $saves/$RANDOM; exit 143' TERM
[ "$(ls $saves)" ] && exit 0
while :; do sleep .05; done
"""


@pytest.mark.parametrize(("lost", "starts"), [("limit", 2), ("node", 3)])
def test_what_is_cut_or_loses_its_node_is_queued_again(
    tiny_run, tiny_execution, tmp_path, monkeypatch, lost, starts
):
    python = tmp_path / "python"
    python.write_text(TRAINS.replace("RUNS", tiny_execution.runs))
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(Written):
        FilesEngine(EngineConfig()).train([tiny_run], tiny_execution)
    monkeypatch.undo()
    with Cluster(tmp_path / "slurm", nodes=2, second=0.05) as cluster:
        submit = f"{tiny_execution.runs}/jobs/submit.sh"
        here = {"PATH": f"{cluster.path}:{os.environ['PATH']}", "BSS_LOOK_SECONDS": "0.1"}
        waiting = subprocess.Popen(
            ["bash", submit, "--wait", "--time=2:30"], env=os.environ | here, stdout=-3
        )
        while lost == "node" and not cluster.told("start"):
            assert waiting.poll() is None
        if lost == "node":
            cluster.dead.update(cluster.told("start")[0]["on"])
        assert waiting.wait(60) == 0
    jobs = cluster.told("start")
    assert len(jobs) == len(cluster.told("requeue")) + 1 == starts
    assert len({job["on"][0] for job in jobs}) == (2 if lost == "node" else 1)
    assert [job["status"] for job in cluster.told("end")] == [0]
