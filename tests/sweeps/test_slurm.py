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
from bss.training.run_config import Parent
from bss.training.run_directory import RunStatus, open_run

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
    assert first == f"--parsable --time=60 --array=0-1 {jobs}/wave-0.sh 0"
    behind = "--parsable --dependency=afterany:101 --time=60 --array=0-0"
    assert second == f"{behind} {jobs}/wave-1.sh 0"
    array = (jobs / "wave-0.sh").read_text()
    assert f"runs=({trunk.id} {short.id})\n" in array  # the longest chain first
    assert read_job(jobs / f"{branch.id}.json") == (branch, tiny_execution)


def test_its_script_trains_and_what_is_done_is_read(family, tiny_execution):
    trunk, branch, _ = family
    execution = dataclasses.replace(tiny_execution, forks=(2048,))
    with pytest.raises(Written):
        FilesEngine(EngineConfig()).train([trunk, branch], execution)
    script = Path(execution.runs) / "jobs/wave-0.sh"
    index = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "7"}
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
        directory.write_status(RunStatus("diverged", 512))
    statuses = FilesEngine(EngineConfig()).train([branch, trunk], tiny_execution)
    assert [statuses[run.id].status for run in (trunk, branch)] == ["diverged", "skipped"]


def test_it_trains_no_fleets():
    with pytest.raises(InputError, match="fleet: 8 given; write 1: engine files trains a run"):
        FilesEngine(EngineConfig(fleet=8))


def test_engines_by_name():
    assert ENGINES["files"] is FilesEngine
    with pytest.raises(InputError, match="engine: 'rai' is unknown; did you mean 'ray'"):
        ENGINES["rai"]


def command(folder, name, text):
    """A program of a fake cluster."""
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def cluster(tmp_path):
    """A folder of programs that stand for Slurm's; each call of sbatch and requeue is noted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command(folder, "sbatch", f'echo "$@" >> {tmp_path}/asked; echo 10$(wc -l < {tmp_path}/asked)')
    command(
        folder,
        "scontrol",
        f"""case $1 in
        show) [ $2 = config ] && echo "MaxArraySize            = 2" || echo node1 ;;
        requeue) echo "$2" >> {tmp_path}/requeued ;;
        esac""",
    )
    return folder


def shell(cluster, *command, **variables):
    """What a command makes of a cluster."""
    path = {"PATH": f"{cluster}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", *map(str, command)],
        env=os.environ | path | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def written(runs, execution, **config):
    """Writes runs; the folder of their jobs."""
    with pytest.raises(Written):
        FilesEngine(EngineConfig(**config)).train(runs, execution)
    return Path(execution.runs).absolute() / "jobs"


def test_arrays_are_no_larger_than_the_cluster_takes_and_a_branch_waits_for_all(
    family, tiny_run, tiny_execution, cluster, tmp_path
):
    trunk, branch, short = family
    more = [overlay(tiny_run, {"schedule.tokens": 512, "seed": seed}) for seed in (2, 3, 4)]
    jobs = written([trunk, branch, short, *more], tiny_execution)
    done = shell(cluster, jobs / "submit.sh")
    assert done.returncode == 0, done.stderr
    wave, behind = jobs / "wave-0.sh", jobs / "wave-1.sh"
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"--parsable --array=0-1 {wave} 0",
        f"--parsable --array=0-1 {wave} 2",
        f"--parsable --array=0-0 {wave} 4",
        f"--parsable --dependency=afterany:101:102:103 --array=0-0 {behind} 0",
    ]


@pytest.mark.parametrize(
    ("option", "refusal"),
    [
        ("--partition=nowhere", "sbatch: error: invalid partition specified: nowhere"),
        ("--nodes=99", "sbatch: error: Requested node configuration is not available"),
    ],
)
def test_what_sbatch_refuses_is_one_line_and_a_status(
    family, tiny_execution, cluster, option, refusal
):
    jobs = written(family, tiny_execution)
    command(cluster, "sbatch", f'echo "{refusal}" >&2; echo "sbatch: error: failed" >&2; exit 1')
    command(cluster, "sinfo", "echo gpu; echo cpu")
    done = shell(cluster, jobs / "submit.sh", option, "--wait")
    assert done.returncode == 2
    assert done.stderr == (
        f"sbatch refused {jobs}/wave-0.sh {option}: {refusal} sbatch: error: failed; "
        "partitions: gpu cpu; submitted before it: none\n"
    )


def test_with_wait_it_returns_when_all_have_left_the_queue(
    family, tiny_execution, cluster, tmp_path
):
    jobs = written(family, tiny_execution)
    command(
        cluster,
        "squeue",
        f"""echo >> {tmp_path}/looks; looks=$(wc -l < {tmp_path}/looks)
        [ $looks = 2 ] && exit 1  # the controller does not answer
        [ $looks -lt 4 ] && echo 102 || echo 999""",
    )
    done = shell(cluster, jobs / "submit.sh", "--wait", BSS_LOOK_SECONDS="0.01")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "looks").read_text().splitlines()) == 4
    assert "--wait" not in (tmp_path / "asked").read_text()


TRAINS = """
name=$(basename "$4" .json)
saves() { mkdir -p RUNS/$name/checkpoints/$RANDOM; exit 143; }
trap 'HOW' TERM
kill -TERM $PPID  # the time is up
for i in {1..100}; do sleep .1; done
"""


@pytest.mark.parametrize(
    ("how", "requeued", "failed", "status"),
    [("saves", 1, 0, 0), ("exit 143", 0, 1, 143), ("kill -9 $$", 0, 1, 137), ("exit 0", 0, 0, 0)],
)
def test_at_its_limit_a_run_that_has_advanced_is_queued_again(
    tiny_run, tiny_execution, cluster, tmp_path, monkeypatch, how, requeued, failed, status
):
    text = TRAINS.replace("RUNS", tiny_execution.runs).replace("HOW", how)
    command(cluster, "python", text)
    monkeypatch.setattr("sys.executable", str(cluster / "python"))
    jobs = written([tiny_run], tiny_execution)
    done = shell(cluster, jobs / "wave-0.sh", 0, SLURM_ARRAY_TASK_ID="0", SLURM_JOB_ID="7")
    assert done.returncode == status, done.stderr
    assert (tmp_path / "requeued").exists() == bool(requeued)
    assert (jobs / f"{tiny_run.id}.failed").exists() == bool(failed)


def test_a_run_whose_jobs_fail_is_given_up_so_that_a_loop_ends(family, tiny_execution):
    trunk, branch, _ = family
    jobs = written([trunk, branch], tiny_execution, retries=1)
    file = jobs / f"{trunk.id}.failed"
    file.write_text("status 2 in job 7\n")
    written([trunk, branch], tiny_execution, retries=1)
    file.write_text("status 2 in job 7\nstatus 137 in job 8\n")
    statuses = FilesEngine(EngineConfig(retries=1)).train([trunk, branch], tiny_execution)
    assert [statuses[run.id].status for run in (trunk, branch)] == ["failed", "skipped"]
    told = f"failed 2 times, last with status 137 in job 8; rm {file} to try again"
    assert statuses[trunk.id].message == told


def test_a_run_of_two_nodes_is_a_step_of_two_tasks(
    tiny_transformer, tiny_execution, cluster, tmp_path
):
    large = overlay(tiny_transformer, {"model.num_layers": 3})
    size = large.model.counts().non_embedding
    assert tiny_transformer.model.counts().non_embedding < size
    jobs = written([tiny_transformer, large], tiny_execution, processes=f"0:1 {size}:2")
    array = jobs / "wave-0-of-2.sh"
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" in array.read_text()
    assert "--nodes" not in (jobs / "wave-0.sh").read_text()
    tasks = 'for i in 0 1; do SLURM_PROCID=$i "${@:2}"; done'
    command(cluster, "srun", f'echo "$1" >> {tmp_path}/steps; {tasks}')
    script = array.read_text().replace("exec ", "exec echo ")
    array.write_text(script)
    variables = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    done = shell(cluster, array, 0, **variables)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "steps").read_text() == "--kill-on-bad-exit=1\n"
    told = [line.split("bss train ")[1] for line in done.stdout.splitlines()]
    job = f"{jobs}/{large.id}.json --processes=2 --coordinator=node1:40007"
    assert told == [f"{job} --process={i}" for i in (0, 1)]


@pytest.mark.parametrize(
    "processes", ["", "0", "two", "1:2", "0:1 0:2", "0:1 5M:0", "0:1 9M:2 5M:4"]
)
def test_processes_that_cannot_be(processes):
    with pytest.raises(InputError, match=r"setup\.engine\.processes: .*write a number, or by the"):
        EngineConfig(processes=processes)


def test_a_bucket_of_a_cloud_is_no_place_for_runs():
    for runs in ("gs://bucket/runs", "s3:/bucket/runs"):
        with pytest.raises(
            InputError, match=f"runs is {runs}, which is not a directory; mount a vol"
        ):
            EngineConfig(runs=runs).execution()
