"""What a wheel holds, and what it is called."""

import tomllib
from pathlib import Path

import bss

ROOT = Path(bss.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_distribution_and_its_extras_go_by_the_name_of_the_project():
    assert PROJECT["project"]["name"] == bss.DISTRIBUTION
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
