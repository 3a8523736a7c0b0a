"""The files engine: what it writes is what trains, by Slurm or by a loop."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from bss.cli.train import read_job
from bss.errors import InputError
from bss.sweeps.engines import ENGINES
from bss.sweeps.grid import overlay
from bss.sweeps.setup import EngineConfig
from bss.sweeps.slurm import FilesEngine, Written
from bss.training.config import Parent
from bss.training.record.directory import open_run
from bss.training.record.status import RunStatus

SBATCH = """#!/bin/bash
echo "$@" >> "$SUBMITTED"
echo 10$(wc -l < "$SUBMITTED")
"""


@pytest.fixture
def family(tiny_run):
    """A trunk with a branch, and a shorter run."""
    trunk = overlay(tiny_run, {"schedule.tokens": 2048})
    branch = overlay(tiny_run, {"schedule.tokens": 3072, "schedule.decay": 1024})
    branch = dataclasses.replace(branch, parent=Parent(trunk.id, 2048))
    return trunk, branch, overlay(tiny_run, {"schedule.tokens": 1024, "seed": 1})


def test_the_arrays_are_submitted_behind_their_parents(family, tiny_execution, tmp_path):
    trunk, branch, short = family
    with pytest.raises(Written, match="3 runs to train, 0 done; submit them: bash ") as written:
        FilesEngine(EngineConfig()).train([branch, short, trunk], tiny_execution)
    submit = str(written.value).split("bash ")[1].split(";")[0]
    (tmp_path / "sbatch").write_text(SBATCH)
    (tmp_path / "sbatch").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SUBMITTED": str(tmp_path / "submitted")}
    done = subprocess.run(
        ["bash", submit, "--time=60"], env=os.environ | path, capture_output=True, text=True
    )
    assert done.stdout == "submitted 101\nsubmitted 102\n", done.stderr
    first, second = (tmp_path / "submitted").read_text().splitlines()
    jobs = Path(submit).parent
    assert first == f"--parsable --time=60 {jobs}/wave-0.sh"
    assert second == f"--parsable --dependency=afterany:101 --time=60 {jobs}/wave-1.sh"
    array = (jobs / "wave-0.sh").read_text()
    assert "#SBATCH --array=0-1\n" in array
    assert f"runs=({trunk.id} {short.id})\n" in array  # the longest chain first
    assert read_job(jobs / f"{branch.id}.json") == (branch, tiny_execution)


def test_its_script_trains_and_what_is_done_is_read(family, tiny_execution):
    trunk, branch, _ = family
    execution = dataclasses.replace(tiny_execution, forks=(2048,))
    with pytest.raises(Written):
        FilesEngine(EngineConfig()).train([trunk, branch], execution)
    script = Path(execution.runs) / "jobs/wave-0.sh"
    index = {"SLURM_ARRAY_TASK_ID": "0"}
    done = subprocess.run(["bash", script], env=os.environ | index, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"run {trunk.id}" in done.stdout
    assert FilesEngine(EngineConfig()).train([trunk], execution)[trunk.id].finished
    with pytest.raises(Written, match="1 runs to train, 1 done"):
        FilesEngine(EngineConfig()).train([trunk, branch], execution)
    assert f"runs=({branch.id})\n" in script.read_text()


def test_branches_of_what_diverged_are_skipped(family, tiny_execution):
    trunk, branch, _ = family
    with open_run(Path(tiny_execution.runs) / trunk.id) as directory:
        directory.end(RunStatus("diverged", 512))
    statuses = FilesEngine(EngineConfig()).train([branch, trunk], tiny_execution)
    assert [statuses[run.id].status for run in (trunk, branch)] == ["diverged", "skipped"]


def test_it_trains_no_fleets():
    with pytest.raises(InputError, match="fleet: 8 given; write 1: engine files trains a run"):
        FilesEngine(EngineConfig(fleet=8))


def test_engines_by_name():
    assert ENGINES["files"] is FilesEngine
    with pytest.raises(InputError, match="engine: 'rai' is unknown; did you mean 'ray'"):
        ENGINES["rai"]
