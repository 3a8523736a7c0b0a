"""Processes that are killed: resumed, they end where an undisturbed one does, to the bit."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bss.models.sizes import model_of
from bss.sweeps.grid import overlay
from bss.training.loop import train
from bss.training.run_directory import read_status
from bss.values import to_dict


@pytest.fixture
def start(tmp_path):
    """Starts `bss train` on one core's worth of threads; what it prints goes to a file."""
    processes = []

    def start_one(run, execution, *flags: str) -> subprocess.Popen:
        config = tmp_path / f"{Path(execution.runs).name}.json"
        config.write_text(
            json.dumps({"run": to_dict(run), "execution": dataclasses.asdict(execution)})
        )
        with open(tmp_path / "log", "a") as log:
            command = [sys.executable, "-m", "bss", "train", str(config), "--json", *flags]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()
        process.wait()


def wait_for_tokens(run, execution, tokens: int, process) -> None:
    """Returns when a checkpoint past these tokens has begun to be written, or the run ended."""
    folder = Path(execution.runs) / run.id / "checkpoints"
    while process.poll() is None:
        names = [p.name.split(".")[0] for p in folder.glob("*")] if folder.exists() else []
        if any(name.isdigit() and int(name) >= tokens for name in names):
            return
        time.sleep(0.002)


def wait_for_a_row(run, execution, process) -> None:
    """Returns when the run's curve has its first row."""
    curve = Path(execution.runs) / run.id / "curve.jsonl"
    while not (curve.exists() and curve.read_text()):
        assert process.poll() is None
        time.sleep(0.01)


def assert_saved(run, execution) -> None:
    """The run stopped before its end, behind a checkpoint."""
    directory = Path(execution.runs) / run.id
    status = read_status(directory)
    assert status.status == "interrupted"
    assert status.tokens < run.plan().tokens
    assert (directory / "checkpoints" / str(status.tokens)).is_dir()


FAMILIES = {
    "transformer": {},
    "grouped, wide heads, mup": {
        **{"parametrization": "mup", "base_width": 8},
        **{"num_kv_heads": 1, "head_dim": 12, "activation": "swiglu", "tied": True},
        **{"rope_theta": 1e6, "scan_layers": True, "remat": True},
    },
    "mixture": {"family": "mixture", "num_experts": 4, "top_k": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("fields", FAMILIES.values(), ids=FAMILIES)
def test_killed_while_it_saves_all_the_time(
    tiny_transformer, tiny_execution, start, assert_same_outcome, fields
):
    run = overlay(tiny_transformer, {"schedule.tokens": 2048, "schedule.batch": "0:2 512:4 1024:8"})
    run = dataclasses.replace(run, model=model_of({**to_dict(run.model), **fields}))
    execution = dataclasses.replace(tiny_execution, checkpoint_seconds=0)
    draw, killed = random.Random(0), 0
    within_first_batch, past_a_change = 200, 1060
    kills = [past_a_change] if fields else [within_first_batch, past_a_change]
    for tokens in kills:
        process = start(run, execution)
        wait_for_tokens(run, execution, tokens, process)
        time.sleep(draw.uniform(0, 0.03))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed == len(kills)
    elsewhere = f"{tiny_execution.runs}-undisturbed"
    undisturbed = dataclasses.replace(tiny_execution, runs=elsewhere)  # it saves at its end only
    for one in (execution, undisturbed):
        if fields:  # here, where the second run has the programs of the first
            assert train(run, one).finished
        else:
            assert start(run, one).wait() == 0
    assert_same_outcome(run, execution, run, undisturbed)
    status = read_status(Path(execution.runs) / run.id)
    assert (status.status, status.recompilations) == ("finished", 0)


def test_sigterm_saves_and_exits_143(tiny_run, tiny_execution, start):
    longer = overlay(tiny_run, {"schedule.tokens": 20_000_000, "data.repeat": True})
    process = start(longer, tiny_execution)
    wait_for_a_row(longer, tiny_execution, process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 143
    assert_saved(longer, tiny_execution)
