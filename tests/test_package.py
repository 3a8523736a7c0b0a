"""What a wheel holds, and what it is called."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bss
from bss.cli.ending import TRAIN
from bss.installation import DISTRIBUTION

ROOT = Path(bss.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_distribution_and_its_extras_go_by_the_name_of_the_project():
    assert PROJECT["project"]["name"] == DISTRIBUTION
    assert PROJECT["project"]["version"] == bss.version()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {bss.version()}\n" in citation


def test_a_wheel_holds_every_file_of_the_package_that_is_no_code():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    globs = [f"{name.replace('.', '/')}/{glob}" for name, some in data.items() for glob in some]
    files = [path.relative_to(ROOT) for path in (ROOT / "bss").rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix not in (".py", ".pyc")]
    assert others
    assert [path for path in others if not any(path.match(glob) for glob in globs)] == []
    packages = {path.parent for path in files if path.suffix == ".py"}
    assert [path for path in packages if not (ROOT / path / "__init__.py").is_file()] == []


def test_requirements_are_the_dependencies_and_those_of_training():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    required = {line for line in lines if line and not line.startswith("#")}
    light, train = (
        PROJECT["project"]["dependencies"],
        PROJECT["project"]["optional-dependencies"]["train"],
    )
    assert required == {*light, *train} and len(required) == len(light) + len(train)
    modules = {name.replace("-", "_") for name in (re.match(r"[\w-]+", x)[0] for x in train)}
    assert all(any(name.startswith(module) for name in modules) for module in TRAIN)
    assert len(TRAIN) == len(modules)


LIGHT = [
    "rules --params 85M --tokens 2.5B --seq-len 1024",
    "plan --tokens 10M --seq-len 128 --batch 8 --lr 1e-3",
    "advise --params 350M --tokens 30B --seq-len 2048",
    "import auto tests/samples/wandb-chart.csv -o {out}/runs.parquet --seq-len 64 --batch 8",
    "fit es results/demo/runs.parquet --targets 1.9,1.8 --resamples 10",
    "report results/demo/runs.parquet -o {out}/page.html --targets 1.9 --resamples 10",
]
BLOCKED = """
import sys

class Blocked:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in TRAIN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

from bss.cli import main
from bss.cli.ending import TRAIN
sys.meta_path.insert(0, Blocked)
"""


@pytest.mark.slow
def test_commands_without_training_need_none_of_its_packages(tmp_path):
    commands = [line.format(out=tmp_path).split() for line in LIGHT]
    code = f"{BLOCKED}sys.exit(sum(main(command) for command in {commands!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = f"{BLOCKED}sys.exit(main(['train', 'RUN.json']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pip install 'batch-size-scaling[train]'" in done.stderr
