"""Old names: each is refused in one line that gives the new name, and CHANGELOG.md has it."""

from pathlib import Path

import pytest

import bss
from bss import renamed
from bss.cli import COMMANDS, main
from bss.errors import InputError
from bss.sweeps.setup import EngineConfig
from bss.values import from_dict

ROOT = Path(bss.__file__).parent.parent
PUBLIC = (ROOT / "tests/cli/public_api.txt").read_text().split()
CHANGES = (ROOT / "CHANGELOG.md").read_text().split("### For users of a git checkout")[1]


def test_old_names_are_gone_and_new_names_are_there():
    assert not {*renamed.COMMANDS} & {*COMMANDS} and {*renamed.COMMANDS.values()} <= {*COMMANDS}
    assert not {*renamed.OPTIONS} & {*PUBLIC} and {*renamed.OPTIONS.values()} <= {*PUBLIC}
    assert not {*renamed.PYTHON} & {*bss.__all__} and {*renamed.PYTHON.values()} <= {*bss.__all__}


@pytest.mark.parametrize(
    "names", [renamed.COMMANDS, renamed.OPTIONS, renamed.PYTHON, renamed.FIELDS]
)
def test_changes_name_the_old_and_the_new(names):
    rows = [line for line in CHANGES.splitlines() if line.startswith("|")]
    for old, new in names.items():
        assert any(old in row.split("|")[1] and new in row.split("|")[2] for row in rows), old


@pytest.mark.parametrize("written", ["{}=2e-3", "{} 2e-3"])
@pytest.mark.parametrize("old", renamed.OPTIONS)
def test_an_old_option_is_refused(old, written, capsys):
    assert main(["points", "runs", *written.format(old).split()]) == 2
    assert capsys.readouterr().err == f"bss points: {old}: is {renamed.OPTIONS[old]} now\n"


@pytest.mark.parametrize("old", renamed.PYTHON)
def test_an_old_python_name_is_refused(old):
    with pytest.raises(AttributeError, match=rf"no attribute '{old}'; it is {renamed.PYTHON[old]}"):
        getattr(bss, old)


@pytest.mark.parametrize(("old", "value"), [("fleet", 4), ("keep", "all"), ("steps", 2)])
def test_an_old_config_key_is_refused(old, value):
    with pytest.raises(InputError, match=rf"engine\.{old} .*; it is {renamed.FIELDS[old]} now"):
        from_dict(EngineConfig, {old: value}, "engine.")
