"""What CI decides, with commands that only say whether they would pass."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUB = """#!/bin/sh
# Fails if a line of the file `failing` is how this call begins; the first time, for `once`.
call="$(basename "$0") $*"
echo "$call" >> "$FOLDER/calls"
while read -r how start; do
  case "$call" in "$start"*)
    [ "$how" = always ] || [ ! -e "$FOLDER/failed" ] || continue
    touch "$FOLDER/failed"; exit 1;;
  esac
done < "$FOLDER/failing"
[ "$call" != "make .cache/ray/ready" ] || { mkdir -p .cache/ray; touch .cache/ray/ready; }
"""


@pytest.fixture
def ci(tmp_path: Path):
    """Runs a script where the calls that begin so fail; returns status, what it said, its calls."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    programs = ("bin/make", "bin/npm", "bin/apt-get", "bin/python3", "bin/python3.13")
    for name in (*programs, ".venv/bin/python", ".cache/ray/bin/python"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STUB)
        path.chmod(0o755)

    def run(
        *failing: str, script: str = "everything", seconds: int = 0
    ) -> tuple[int, str, list[str]]:
        (tmp_path / "failing").write_text("".join(f"{line}\n" for line in failing))
        variables = {
            "FOLDER": str(tmp_path),
            "PYENV_ROOT": str(tmp_path / "none"),
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "SECONDS": str(seconds),  # bash counts from here
        }
        command = ["bash", f".ci/{script}"]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True
        )
        return done.returncode, done.stdout, (tmp_path / "calls").read_text().splitlines()

    return run


def test_all_is_run_and_passes(ci) -> None:
    status, said, calls = ci()
    assert status == 0
    assert "did not run" not in said
    made = [call.removeprefix("make ") for call in calls if call.startswith("make ")]
    wanted = ["develop", "browser", ".cache/ray/ready", "test-slow", "test-ray"]
    assert made == [*wanted, "matrix PYTHONS=3.13"]


def test_the_fast_tests_decide(ci) -> None:
    status, _, calls = ci(script="run")
    assert status == 0
    assert calls[:2] == ["make test", "make develop"]
    status, _, _ = ci("always make test", script="run")
    assert status != 0


def test_a_slow_machine_leaves_out_the_second_python_and_says_so(ci) -> None:
    status, said, calls = ci(seconds=3000)
    assert status == 0
    assert "did not run: fast tests on Python 3.13" in said
    assert "make test-slow" in calls
    assert "make matrix PYTHONS=3.13" not in calls


@pytest.mark.parametrize("target", ["develop", "test-slow", "test-ray", "matrix"])
def test_what_fails_twice_fails(ci, target) -> None:
    status, _, _ = ci(f"always make {target}", "always python -m pytest")
    assert status != 0


@pytest.mark.parametrize("target", ["test-slow", "test-ray"])
def test_tests_that_fail_once_run_again_alone(ci, target) -> None:
    status, said, calls = ci(f"once make {target}")
    assert status == 0
    assert "each of them runs once more" in said
    assert sum("--last-failed" in call for call in calls) == 1


@pytest.mark.parametrize(
    ("target", "registry", "tests"),
    [
        ("browser", "npm ping", "tests of the page in a browser"),
        (".cache/ray/ready", "python -m pip index", "tests on a Ray cluster"),
    ],
)
def test_an_installation_fails_unless_its_registry_is_away(ci, target, registry, tests) -> None:
    status, said, _ = ci(f"always make {target}")
    assert status != 0
    assert "though its registries answer" in said
    status, said, _ = ci(f"always make {target}", f"always {registry}")
    assert status == 0
    assert said.count("did not run") == 1
    assert f"did not run: {tests}" in said.splitlines()[-1]
