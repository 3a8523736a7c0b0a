"""Each column, key, option and public name is in docs/names.toml, once, and nothing else is."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import bss
from bss import renamed
from bss.cli import main
from bss.laws import read_fit
from bss.report.results import _entries as fits_in
from bss.sweeps.contenders import contender_table
from bss.tables.reading import COLUMNS
from bss.tables.schema import POINTS
from tests import names
from tests.committed import files_of

FITS = ("bss/laws/published/steplaw_dense.json", "bss/laws/published/steplaw_rates.json")
PRINTED = (
    "plan --tokens 10M --seq-len 128 --batch '0:8 2M:16' --lr 1e-3 --beta2-half-life 1M",
    "rules --params 85M --tokens 2.5B --seq-len 1024 --batch-tokens 128K --lr 1e-3 --to 512K",
    "advise --params 85M --tokens 2.5B --seq-len 1024",
    "models",
    "points results/demo/runs.parquet --targets 1.9,1.7",
    "theory risk --source .3 --capacity 4 --data 2^10 --batch 2",
)


def test_a_name_is_declared_once_with_a_meaning():
    rows = [row for section in names.TITLES for row in names.NAMES[section]]
    for section in ("options", "python"):
        counted = Counter(name for name, _, _ in names.NAMES[section])
        assert not [name for name, count in counted.items() if count > 1]
    counted = Counter(name for key in ("columns", "keys") for name, _, _ in names.NAMES[key])
    assert not [name for name, count in counted.items() if count > 1]
    assert not [name for name, _, meaning in rows if not meaning]


def test_options_and_python_names_are_those_of_the_code():
    listed = (names.ROOT / "tests/cli/public_api.txt").read_text().splitlines()
    options = {line.split()[-1] for line in listed if line.startswith("bss ")}
    assert names.declared("options") == options
    assert names.declared("python") == {*bss.__all__}


def test_no_declared_name_is_an_old_one():
    old = {*renamed.COLUMNS, *renamed.PHASE_COLUMNS, *renamed.OPTIONS, *renamed.PYTHON}
    assert old & names.declared(*names.TITLES) == {"kind"}  # a key of JSON, and no column


def undeclared_columns(columns: Iterable[str]) -> set[str]:
    return names.undeclared({*columns}, "columns")


def test_columns_of_the_package_are_declared():
    assert not undeclared_columns([*COLUMNS, *POINTS]) - {"params_m", "hyper"}  # of other papers
    fit = read_fit(names.ROOT / FITS[0])
    tables = [fit.summary(), fit.residuals(), contender_table([], {})]
    assert not undeclared_columns(column for table in tables for column in table)


def tables() -> list[Path]:
    """Return the committed tables and fits that are neither frozen nor of others."""
    return [path for path in files_of(names.ROOT / "results") if "published" not in path.parts]


def test_columns_of_committed_tables_are_declared():
    wrong = {}
    for path in tables():
        found: list[str] = []
        if path.suffix == ".csv":
            found = list(pd.read_csv(path, nrows=0))
        elif path.suffix == ".parquet":
            found = pq.read_schema(path).names
        if lacking := undeclared_columns(found):
            wrong[str(path)] = lacking
    assert not wrong


def test_keys_of_committed_fits_are_declared():
    paths = [path for path in tables() if path.name in ("fit.json", "fits.json")]
    for path in [*paths, *(names.ROOT / name for name in FITS)]:
        entry = json.loads(path.read_text(encoding="utf-8"))
        keys = {key for _, fit in fits_in(entry) for key in names.keys_in(fit)}
        assert not names.undeclared(keys, "columns", "keys"), path


@pytest.mark.parametrize("command", PRINTED)
def test_keys_of_printed_json_are_declared(command, capsys):
    assert main([*shlex.split(command), "--json"]) == 0
    keys = {*names.keys_in(json.loads(capsys.readouterr().out))}
    assert not names.undeclared(keys, "columns", "keys")


def test_the_page_is_that_of_the_table():
    assert names.PAGE.read_text(encoding="utf-8") == names.page()
    for old in (*renamed.OPTIONS, *renamed.COMMANDS):
        for page in sorted((names.ROOT / "docs").rglob("*.md")):
            assert old + " " not in page.read_text(encoding="utf-8"), page
