"""One of each thing that users rely on, compiled as theirs is: with the default flags of XLA.

All other tests compile with most optimisations off (tests/conftest.py).
"""

import dataclasses
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from bss.sweeps.grid import overlay
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.training.run_directory import read_curve, read_status
from bss.values import to_dict
from notebooks.execute import executed

ROOT = Path(__file__).parents[2]
OURS = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")


@pytest.fixture(scope="module")
def users_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment without what the tests set; one cache for the processes of this module."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    kept["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))
    return kept


@pytest.fixture(scope="module")
def run(tiny_run: RunConfig) -> RunConfig:
    """20 steps through a batch change, a row of the curve after each."""
    changes = {"schedule.tokens": 960, "schedule.batch": "0:2 320:4", "schedule.warmup": 64}
    rows = {"evaluation.first": 32, "evaluation.per_efold": 1000}
    return overlay(tiny_run, {**changes, **rows})


@pytest.fixture(scope="module")
def execution(execution_in: Any, tmp_path_factory: pytest.TempPathFactory):
    """Makes the execution of the run in a folder by name, with changes."""
    home = tmp_path_factory.mktemp("runs")

    def named(name: str, **changes: Any) -> Execution:
        return dataclasses.replace(execution_in(home / name), **{"buckets": (2,), **changes})

    return named


def job(run: RunConfig, execution: Execution) -> dict[str, Any]:
    """A run and its execution, as JSON."""
    return {"run": to_dict(run), "execution": dataclasses.asdict(execution)}


def finish(commands: list[list[str]], environment: dict[str, str]) -> list[str]:
    """Run commands side by side to their end; return what each printed."""
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(one, env=environment, cwd=ROOT, **how) for one in commands]
    told = [process.communicate() for process in started]
    for process, (_, errors) in zip(started, told, strict=True):
        assert process.returncode == 0, errors
    return [printed for printed, _ in told]


def rows_of(run: RunConfig, execution: Execution) -> list[dict[str, Any]]:
    """The run's curve without its times."""
    curve = read_curve(Path(execution.runs) / run.id)
    return [{name: x for name, x in row.items() if name != "seconds"} for row in curve]


def assert_close(run: RunConfig, execution: Execution, expected: list[dict[str, Any]]) -> None:
    """Equal rows up to the order in which devices add."""
    rows = rows_of(run, execution)
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    for row, wanted in zip(rows, expected, strict=True):
        for name in ("loss", "eval_loss", "grad_norm"):
            np.testing.assert_allclose(row[name], wanted[name], rtol=1e-5, err_msg=name)


def train_all(
    folder: Path, jobs: list[dict[str, Any]], environment: dict[str, str], *flags: list[str]
) -> None:
    """Train some runs one after another, in a process for each list of flags."""
    folder.mkdir(exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "tests.training.many_processes", str(folder)]
    finish([[*command, *own] for own in flags or ([],)], environment)


def train_until_killed(
    run: RunConfig, execution: Execution, tokens: int, folder: Path, environment: dict[str, str]
) -> None:
    """Train with `bss train`, and kill it once a checkpoint has so many tokens."""
    (folder / "killed.json").write_text(json.dumps(job(run, execution)))
    command = [sys.executable, "-m", "bss", "train", str(folder / "killed.json"), "--json"]
    checkpoints = Path(execution.runs) / run.id / "checkpoints"
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        while process.poll() is None:
            names = [path.name for path in checkpoints.glob("*")]
            if any(name.isdigit() and int(name) >= tokens for name in names):
                break
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL, (folder / "log").read_text()


@pytest.fixture(scope="module")
def trained(
    run: RunConfig,
    execution: Any,
    users_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Execution]:
    """A killed run that goes on, an undisturbed one and one on two devices; a process for all."""
    folder = tmp_path_factory.mktemp("trained")
    executions = {
        "killed": execution("killed"),
        "undisturbed": execution("undisturbed"),
        "two devices": execution("two-devices", devices=2),
    }
    saving = dataclasses.replace(executions["killed"], checkpoint_seconds=0)
    train_until_killed(run, saving, 160, folder, users_environment)
    jobs = [job(run, one) for one in executions.values()]
    train_all(folder, jobs, users_environment | {"JAX_NUM_CPU_DEVICES": "2"})
    return executions


def test_a_killed_run_resumes_to_the_same_bits(
    run: RunConfig, trained: dict[str, Execution]
) -> None:
    rows = rows_of(run, trained["killed"])
    assert len(rows) == 20
    assert rows == rows_of(run, trained["undisturbed"])
    assert read_status(Path(trained["killed"].runs) / run.id).recompilations == 0


def test_two_devices_are_as_one(run: RunConfig, trained: dict[str, Execution]) -> None:
    assert_close(run, trained["two devices"], rows_of(run, trained["undisturbed"]))


def test_two_processes_are_as_one(
    run: RunConfig,
    trained: dict[str, Execution],
    execution: Any,
    users_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        flags = ["--processes=2", f"--coordinator=127.0.0.1:{free.getsockname()[1]}"]
    two = execution("two-processes")
    each = [[*flags, f"--process={i}"] for i in range(2)]
    one_device = users_environment | {"JAX_NUM_CPU_DEVICES": "1"}
    train_all(tmp_path, [job(run, two)], one_device, *each)
    told = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2)]
    assert [one["devices"] for [one] in told] == [2, 2]
    assert_close(run, two, rows_of(run, trained["undisturbed"]))


COMMITTED_FIT = """
import sys
from bss.cli import main
from tests.laws.test_committed_fits import *

points = read_points(RESULTS / "demo/points.csv")
expected = committed("demo/fits.json")["hyperbola"]
assert_same(fit_es(points, asked("hyperbola", expected), options=QUICK), expected)
sys.exit(main(sys.argv[1:]))
"""


def test_the_first_command_of_the_readme_and_a_committed_fit(
    users_environment: dict[str, str],
) -> None:
    """In one process; what the page shows is printed."""
    page = (ROOT / "README.md").read_text()
    line = page.partition("```bash\n")[2].partition("\n")[0]
    shown = page.partition("```text\n")[2].partition("```")[0]
    arguments = shlex.split(line.partition(" --plot ")[0])[1:]
    assert arguments[:2] == ["fit", "es"]
    [printed] = finish([[sys.executable, "-c", COMMITTED_FIT, *arguments]], users_environment)
    assert printed.startswith(shown) and shown.startswith("B_opt")


def test_a_notebook_at_smoke_size(
    users_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", users_environment["JAX_COMPILATION_CACHE_DIR"])
    monkeypatch.setenv("RUN", "smoke")
    notebook = executed(ROOT / "notebooks/fsl_bss.ipynb")
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert not [out for out in outputs if out.output_type == "error"]
    assert sum("image/png" in out.get("data", {}) for out in outputs) >= 5
    nbformat.validate(notebook)
