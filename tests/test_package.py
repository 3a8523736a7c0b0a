"""What a wheel holds, and what it is called."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bss
from bss.cli.ending import FIT, TRAIN
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
    extras = PROJECT["project"]["optional-dependencies"]
    light, fit, train = PROJECT["project"]["dependencies"], extras["fit"], extras["train"][1:]
    assert extras["train"][0] == f"{DISTRIBUTION}[fit]"
    assert required == {*light, *fit, *train}
    assert len(required) == len(light) + len(fit) + len(train)
    modules = {name.replace("-", "_") for name in map(name_of, train)}
    assert all(any(name.startswith(module) for name in modules) for module in TRAIN)
    assert len(TRAIN) == len(modules)
    assert {*FIT} == {{"pyyaml": "yaml"}.get(name, name) for name in map(name_of, fit)}


def name_of(requirement):
    found = re.match(r"[\w-]+", requirement)
    assert found
    return found[0]


LIGHT = [
    "plan --tokens 10M --seq-len 128 --batch 8 --lr 1e-3 --export csv",
    "plan --tokens 10M --seq-len 128 --batch 8 --lr 1e-3 --export jax",
    "plan --tokens 10M --seq-len 128 --batch '0:8 5M:16' --lr 1e-3",
    "rules --params 85M --tokens 2.5B --seq-len 1024",
    "advise --params 350M --tokens 30B --seq-len 2048",
    "models",
]
LACKING = {  # commands, and the extra that they name
    "fit es runs.csv": "fit",
    "schedule --from fit.json --tokens 1M": "fit",
    "plan --tokens 10M --seq-len 128 --batch 8 --lr 1e-3 --plot plan.png": "fit",
    "report runs.csv -o page.html": "fit",
    "train RUN.json": "train",
    "sweep SWEEP.json": "train",
}
FITTING = [
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
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

from bss.cli import main
from bss.cli.ending import FIT, TRAIN
sys.meta_path.insert(0, Blocked)
"""


def run_without(blocked, commands):
    """Run commands in a process that lacks modules; return it, with the sum of their statuses."""
    code = f"sys.exit(sum(main(command) for command in {commands!r}))"
    program = BLOCKED.format(blocked=blocked) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_the_light_install_is_enough_for_plans_exports_rules_and_advice():
    done = run_without("(*FIT, *TRAIN)", [shlex.split(line) for line in LIGHT])
    assert done.returncode == 0, done.stderr


def test_a_command_that_lacks_an_extra_names_it_in_one_line():
    done = run_without("(*FIT, *TRAIN)", [line.split() for line in LACKING])
    assert done.returncode == 2 * len(LACKING), done.stderr
    lines = done.stderr.splitlines()
    for line, extra in zip(lines, LACKING.values(), strict=True):
        assert re.search(r"bss .*: \w+ is not installed; pip install", line)
        assert line.endswith(f"'batch-size-scaling[{extra}]'")


@pytest.mark.slow
def test_commands_without_training_need_none_of_its_packages(tmp_path):
    done = run_without("TRAIN", [line.format(out=tmp_path).split() for line in FITTING])
    assert done.returncode == 0, done.stderr
