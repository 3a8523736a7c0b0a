"""The README's three commands, as they stand there, on exports of a planted surface."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.laws.es import LAWS
from tests.drawn import collisions, points

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```bash\n(\.venv/bin/bss import .*?)```", re.DOTALL)


@pytest.fixture
def exports(planted, tmp_path, monkeypatch):
    """A chart of W&B with a line for each run, beside a picture: a stranger's directory."""
    draw, lines = np.random.default_rng(0), []
    (tmp_path / "EXPORTS").mkdir()
    (tmp_path / "EXPORTS" / "chart.png").write_bytes(b"no log")
    for batch in planted.BATCHES:
        steps = np.unique(np.geomspace(20, 400_000 / batch, 120).astype(int))
        loss = LAWS["surface"].loss(planted.SURFACE, steps.astype(float), batch)
        name = f"ours-b{batch} - train/loss"
        loss = np.round(loss * (1 + 1e-3 * draw.standard_normal(len(steps))), 5)
        three = {name: loss, f"{name}__MIN": loss, f"{name}__MAX": loss}
        lines.append(pd.DataFrame(three, index=pd.Index(steps, name="Step")))
    pd.concat(lines, axis=1).sort_index().to_csv(tmp_path / "EXPORTS" / "wandb_export.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_three_commands_make_a_page_of_exports(planted, exports, saved, capsys):
    block = BLOCK.search(README.read_text())
    assert block
    commands = block[1].splitlines()
    assert [line.split()[1] for line in commands] == ["import", "fit", "report"]
    told = []
    for line in commands:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
        told.append(capsys.readouterr().out)
    imported, fitted, reported = told
    assert f"{len(planted.BATCHES)} runs" in imported
    optimum = LAWS["surface"].quantities(planted.SURFACE, 2.4)["B_opt"]
    shown = re.search(r"^ *2\.4 .*$", fitted, re.MULTILINE)
    assert shown and not collisions(saved["es.png"]) and sum(points(saved["es.png"])) > 35
    numbers = [float(n) for n in re.findall(r"\d+\.?\d*", shown[0])]
    assert any(abs(number / optimum - 1) < 0.1 for number in numbers)
    page = (exports / "RUNS.html").read_text()
    assert reported.strip() == "report: RUNS.html"
    assert page.count("<svg") >= 4 and "ours-b16" in page


@pytest.mark.slow
def test_every_block_runs_in_a_fresh_shell(exports):
    """In order, but for what `make` does; in a directory that has what the repository has."""
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    for name in ("configs", "experiments", "results"):
        (exports / name).symlink_to(README.parent / name)
    (exports / ".venv").symlink_to(Path(sys.executable).parents[1])
    script = "set -e\n" + "".join(block for block in blocks if not block.startswith("make"))
    shell = {name: os.environ[name] for name in ("PATH", "HOME")}
    done = subprocess.run(["bash", "-c", script], env=shell, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (exports / "fit.json").stat().st_size > 1000
    assert json.loads((exports / "fit.json").read_text())["kind"] == "es"
    assert "--step-batch-size-schedule" in done.stdout
