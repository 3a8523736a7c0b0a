"""Imports between packages go one way: `lint-imports` checks them, and knows every package."""

import tomllib
from pathlib import Path

import bss

ROOT = Path(bss.__file__).parent


def test_every_package_has_its_layer():
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layered,) = (one for one in settings["contracts"] if one.get("containers") == ["bss"])
    named = {name.strip() for layer in layered["layers"] for name in layer.split("|")}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    files = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert layered["exhaustive"] and named == packages | files


def test_experiments_are_independent_of_each_other():
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["importlinter"]
    (apart,) = (one for one in settings["contracts"] if one["type"] == "independence")
    folders = {f"experiments.{path.parent.name}" for path in ROOT.parent.glob("experiments/*/*.py")}
    assert folders == {*apart["modules"]}
