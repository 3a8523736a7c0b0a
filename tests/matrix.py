"""Runs the fast tests on several Pythons: `make matrix`, or `make matrix PYTHONS="3.13 lowest"`.

Each column has an environment of its own in .cache/matrix: a Python version with the exact versions
of requirements.lock; `lowest` with Python 3.11 and the lowest versions that pyproject.toml allows.
This file needs the standard library only.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".cache/matrix"
SOURCES = ("requirements.lock", "pyproject.toml")
LOWEST = "lowest"
LOWEST_PYTHON = "3.11"
COLUMNS = ("3.11", "3.12", "3.13", LOWEST)
EXTRAS = ".[train,test,notebooks]"
QUIET = ("--quiet", "--no-compile", "--disable-pip-version-check")


def find_python(version: str) -> str | None:
    """Return a Python of a version like "3.12": from the PATH, or the newest of pyenv."""
    candidates = [shutil.which(f"python{version}"), shutil.which("python3")]
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True).stdout.strip()
        installed = Path(root, "versions").glob(f"{version}.*/bin/python3")
        candidates += sorted(map(str, installed), key=_numbers, reverse=True)
    return next((path for path in candidates if path and _version_of(path) == version), None)


def _numbers(path: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", path)]


def _version_of(path: str) -> str:
    """Return the version of a Python; "" for one that does not start, as a shim of pyenv."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([path, "-c", code], capture_output=True, text=True).stdout.strip()


def install(column: str, python: str) -> Path:
    """Make the environment of a column unless it is newer than what it is made from."""
    environment = ENVIRONMENTS / column
    ready = environment / "ready"
    changed = max((ROOT / name).stat().st_mtime for name in SOURCES)
    if ready.is_file() and ready.stat().st_mtime > changed:
        return environment
    _run(python, "-m", "venv", "--clear", environment)
    pip = (environment / "bin/python", "-m", "pip", "install", *QUIET)
    if column == LOWEST:
        _run(*pip, "uv")
        uv = (environment / "bin/uv", "pip", "install", "--quiet")
        own = ("--python", environment / "bin/python", "--resolution", "lowest-direct")
        _run(*uv, *own, "--editable", EXTRAS)
    else:
        _run(*pip, "--no-deps", "-r", "requirements.lock", "--editable", ".")
    ready.touch()
    return environment


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def run_tests(environment: Path) -> str:
    """Run the fast tests, show what they print, and return their last line."""
    command = (environment / "bin/python", "-m", "pytest", "-n", "2", "--dist", "loadfile")
    last = "no line"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout or ():
            sys.stdout.write(line)
            last = line.strip() or last
    return f"status {tests.returncode}: {last}"


def main(columns: list[str]) -> int:
    """Run columns one after another; print a line for each; return 1 if one failed."""
    results = {}
    for column in columns or COLUMNS:
        python = find_python(LOWEST_PYTHON if column == LOWEST else column)
        if python:
            results[column] = run_tests(install(column, python))
        else:
            results[column] = "left out: this Python is not on the machine"
    for column, result in results.items():
        print(f"{column:>6}  {result}")
    # A column that was asked for by name must have run.
    good = ("status 0",) if columns else ("status 0", "left out")
    return int(not all(result.startswith(good) for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
