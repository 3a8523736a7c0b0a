"""docs/train.md with the wheel in an environment of its own, outside the checkout."""

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "docs/train.md").read_text().partition("## Use outside of the checkout")[2]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A directory with the wheel in its .venv, which sees every other package of this one."""
    directory = tmp_path_factory.mktemp("outside")
    source = directory / "source"  # where a build may leave its own
    shutil.copytree(ROOT / "bss", source / "bss")
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    build = "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", directory, source
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
    _is_from_the_wheel(outside)


FITS = {
    "es": ("runs.csv --targets 1.9,1.8 --resamples 20", "--loss 1.85 --batch 8"),
    "critical": ("steps.csv --resamples 20", "--params 500M"),
    "loss": ("losses.csv --resamples 20", "--params 215M --tokens 10B --batch 128 --seq-len 2048"),
    "curve": ("curves.csv --resamples 10", "--batch 8 --tokens 500K --lr 2e-3"),
}
WITHOUT_A_FIT = """rules --params 85M --tokens 2.5B --seq-len 1024
plan --tokens 10M --seq-len 128 --batch 8 --lr 1e-3
advise --params 350M --tokens 30B --seq-len 2048
report runs.csv -o page.html --targets 1.9 --resamples 10
schedule --from es.json --tokens 1M --stages 3
schedule --from curve.json --tokens 500K --lr 2e-3
schedule --from loss.json --tokens 10B --set params=215M
advise --params 215M --tokens 10B --seq-len 2048 --from loss.json"""


def _small_tables(directory: Path) -> None:
    """Copy tables of results/, few rows of the large ones."""
    pd.read_parquet(ROOT / "results/demo/runs.parquet").to_csv(directory / "runs.csv", index=False)
    shutil.copy(ROOT / "bss/laws/published/cbs_steps.csv", directory / "steps.csv")
    losses = pd.read_csv(ROOT / "results/published/steplaw_dense_best.csv", comment="#")
    losses.head(60).to_csv(directory / "losses.csv", index=False)
    curves = pd.read_parquet(ROOT / "results/late_switch/runs.parquet")
    changes = curves.groupby("run")["batch"].nunique()
    names = [*changes[changes == 1].index[:6], *changes[changes == 2].index[:6]]
    curves[curves["run"].isin(names)].to_csv(directory / "curves.csv", index=False)


@pytest.mark.slow
def test_fits_and_advice_on_small_tables(outside):
    _small_tables(outside)

    def bss(line: str) -> str:
        command = [".venv/bin/bss", *line.split()]
        done = subprocess.run(command, cwd=outside, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    for kind, (fitted, run) in FITS.items():
        (outside / f"{kind}.json").write_text(bss(f"fit {kind} {fitted} --json"))
        assert bss(f"next {kind}.json").startswith("Next run: ")
        predicted = json.loads(bss(f"predict --from {kind}.json {run} --extrapolate --json"))
        assert predicted["of"] == kind
    for line in WITHOUT_A_FIT.splitlines():
        assert bss(line)
    assert (outside / "page.html").read_text().count("<svg") >= 3
    _is_from_the_wheel(outside)


CORPUS = """import pathlib
from dataclasses import dataclass

import bss


@dataclass(frozen=True)
class Chapters(bss.Corpus):
    folder: str

    def texts(self):
        for path in sorted(pathlib.Path(self.folder).rglob("*.md")):
            yield from path.read_text().split("\\n\\n\\n")


CORPUS = Chapters("texts")
"""
OWN = {
    "setup": {
        "model": {"family": "bigram:Bigram", "width": 16},
        "text": {"corpus": "chapters:CORPUS", "seq_len": 32},
        "schedule": {"tokens": "20K"},
        "evaluation": {"tokens": "1024", "first": "5K"},
    },
    "axes": {"model.width": [8, 16]},
}


@pytest.mark.slow
def test_a_sweep_on_ones_own_corpus_with_ones_own_model(outside):
    (outside / "chapters.py").write_text(CORPUS)
    shutil.copy(ROOT / "tests/models/bigram.py", outside)
    (outside / "models.json").write_text(json.dumps(OWN))
    if not (outside / "texts").exists():
        _texts(outside)
    command = ".venv/bin/bss", "sweep", "models.json", "--out", "models"
    done = subprocess.run(command, cwd=outside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "2 runs finished" in done.stdout
    finals = (outside / "models/finals.csv").read_text()
    assert "Bigram" in finals


def _is_from_the_wheel(outside: Path) -> None:
    where = [".venv/bin/python", "-c", "import bss; print(bss.__file__)"]
    found = subprocess.run(where, cwd=outside, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(outside))
