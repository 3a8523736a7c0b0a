"""docs/train.md with the wheel in an environment of its own, outside the checkout."""

import json
import os
import re
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = (
    (ROOT / "docs/train.md").read_text().partition("## Installed, in a directory of your own")[2]
)
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A directory with the wheel in its .venv, which sees every other package of this one."""
    directory = tmp_path_factory.mktemp("outside")
    build = "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", directory, ROOT
    subprocess.run([sys.executable, "-m", *build], check=True)
    (wheel,) = directory.glob("*.whl")
    venv.create(directory / ".venv")
    python = directory / ".venv/bin/python"
    pip = sys.executable, "-m", "pip", "--python", python
    subprocess.run([*pip, "install", "--quiet", "--no-deps", wheel], check=True)
    (packages,) = directory.glob(".venv/lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return directory


def _texts(directory: Path) -> None:
    """Text of one's own: the sources of this interpreter's modules, as notes."""
    (directory / "texts/old").mkdir(parents=True)
    sources = sorted(Path(os.__file__).parent.glob("[a-m]*.py"))
    for number, source in enumerate(sources):
        folder = directory / "texts" / ("old" if number % 2 else "")
        (folder / f"{source.stem}.md").write_text(source.read_text(errors="ignore"))


@pytest.mark.slow
def test_a_sweep_on_ones_own_text_with_ones_own_rate(outside):
    code, config, commands = (text for _, text in BLOCK.findall(SECTION))
    (outside / "halving.py").write_text(code)
    (outside / "own.json").write_text(config)
    _texts(outside)
    told = []
    for line in commands.splitlines():
        done = subprocess.run(line.split(), cwd=outside, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    swept, fitted, reported = told
    assert "4 runs finished" in swept and "B_opt" in fitted and "own" in reported
    run = json.loads(next(outside.glob("own/runs/*/config.json")).read_text())
    assert run["schedule"]["rate"] == "halving:RATE"
    assert (outside / "own/report.html").read_text().count("<svg") >= 3
    where = [".venv/bin/python", "-c", "import bss; print(bss.__file__)"]
    found = subprocess.run(where, cwd=outside, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(outside))
