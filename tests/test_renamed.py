"""Old names: each is refused in one line that gives the new name, and CHANGELOG.md has it."""

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import bss
from bss import renamed
from bss.cli import COMMANDS, main
from bss.errors import InputError
from bss.laws.es import LAWS
from bss.sweeps.setup import EngineConfig
from bss.tables import read_points, write_table
from bss.tables.renaming import with_new_names
from bss.values import from_dict
from tests.committed import files_of

ROOT = Path(bss.__file__).parent.parent
PUBLIC = (ROOT / "tests/cli/public_api.txt").read_text().split()
CHANGES = (ROOT / "CHANGELOG.md").read_text().split("### For users of a git checkout")[1]


def test_old_names_are_gone_and_new_names_are_there():
    assert not {*renamed.COMMANDS} & {*COMMANDS} and {*renamed.COMMANDS.values()} <= {*COMMANDS}
    assert not {*renamed.OPTIONS} & {*PUBLIC} and {*renamed.OPTIONS.values()} <= {*PUBLIC}
    assert not {*renamed.PYTHON} & {*bss.__all__} and {*renamed.PYTHON.values()} <= {*bss.__all__}


@pytest.mark.parametrize("names", ["COMMANDS", "OPTIONS", "PYTHON", "FIELDS", "COLUMNS", "LAWS"])
def test_changes_name_the_old_and_the_new(names):
    rows = [line for line in CHANGES.splitlines() if line.startswith("|")]
    for old, new in getattr(renamed, names).items():
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


def test_an_old_law_is_refused():
    for old, new in renamed.LAWS.items():
        with pytest.raises(InputError, match=f"{old!r} is unknown; it is {new!r} now"):
            LAWS.load(old)


OLD = {
    "model": ["m", "m", "m"],
    "target_loss": [2.0, 2.0, 2.0],
    "kind": ["stable", "averaged", "annealed"],
    "batch": [8, 8, 8],
    "steps": [100, 90, 80],
    "seq_len": [64, 64, 64],
    "resolution": [0.1, 0.1, 0.2],
}


def test_an_old_table_of_points_is_read_with_a_message(tmp_path):
    pd.DataFrame(OLD).to_csv(tmp_path / "points.csv", index=False)
    with pytest.warns(UserWarning, match="column (kind is read as lr_phase|resolution is read as)"):
        read = read_points(tmp_path / "points.csv")
    assert list(read["lr_phase"]) == ["constant", "constant", "decayed"]
    assert list(read["weights"]) == ["last", "averaged", "last"]
    assert list(read["eval_spacing"]) == OLD["resolution"]
    write_table(read, tmp_path / "again.csv")
    pd.testing.assert_frame_equal(read_points(tmp_path / "again.csv"), read)


def test_columns_that_only_look_like_old_ones_stay():
    table = pd.DataFrame({"kind": ["web", "code"], "stop": [1, 2], "token_budget": [3, 4]})
    assert with_new_names(table)[0].equals(table)


def test_every_committed_table_has_the_new_names():
    old = {*renamed.COLUMNS, *renamed.PHASE_COLUMNS}
    for path in files_of(ROOT / "results"):
        if path.name == "atlas.csv":  # its phase is where a value was measured: end, branch
            continue
        if path.suffix == ".csv":
            assert not {*pd.read_csv(path, nrows=0)} & old, path
        elif path.suffix == ".parquet":
            assert not {*pq.read_schema(path).names} & old, path
        else:
            assert not any(law in path.read_text() for law in renamed.LAWS), path
