"""Random mutations of every format: each ends in its declared answer, never in a traceback."""

import shutil

import numpy as np
import pytest

from bss.errors import InputError
from tests.importers.imported import assert_same, expected, imported
from tests.importers.mutations import DIVERGED, MUTATIONS, REFUSED, SAME, mutations_of
from tests.importers.writers import FORMATS, Written, rows_of_run


def answer(folder, written: Written, rows) -> str:
    """What became of files in a folder that were made of a run; asserts what it claims."""
    try:
        table, report = imported([folder], written)
    except InputError as error:
        return REFUSED if str(error).splitlines() == [str(error)] else "told in several lines"
    wanted = expected(rows, written)
    assert list(table.pop("status").unique() if "status" in table else ()) == (
        [report.status] if report.status != "finished" else []
    )
    if report.diverged_at is not None:
        assert_same(table, wanted.loc[wanted["step"] < report.diverged_at].reset_index(drop=True))
        return DIVERGED
    assert_same(table, wanted)
    return SAME


def truncate(folder, rng: np.random.Generator) -> bool:
    """Cut a file within its last rows; False where the end of a row was hit."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    file = files[int(rng.integers(len(files)))]
    data = file.read_bytes()
    cut = int(rng.integers(len(data) // 2, len(data) - 1))
    file.write_bytes(data[:cut])
    if file.suffix in (".json", ".parquet"):
        return True
    if "tfevents" in file.name:
        return cut not in record_ends(data)
    whole = data[:cut].endswith(b"\n") or data[cut : cut + 1] == b"\n"
    return not whole


def record_ends(data: bytes) -> set[int]:
    ends, at = set(), 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
        ends.add(at)
    return ends


def mutate(name: str, tmp_path, seed: int) -> None:
    """Every mutation of a format once, and a cut."""
    written, rng = FORMATS[name], np.random.default_rng(seed)
    rows = rows_of_run(seed, schedule=written.schedule)
    for mutation in mutations_of(written):
        change, declared = MUTATIONS[mutation]
        folder = tmp_path / "mutated"
        folder.mkdir()
        written.write(folder, change(rows, rng, written))
        assert answer(folder, written, rows) == declared, (mutation, seed)
        shutil.rmtree(folder)
    folder = tmp_path / "cut"
    folder.mkdir()
    written.write(folder, rows)
    if truncate(folder, rng):
        assert_read_to_the_cut(folder, written, rows)
    shutil.rmtree(folder)


def assert_read_to_the_cut(folder, written: Written, rows) -> None:
    """What is read is right; of the last row the held-out loss or the tokens may be cut off.

    Tokens are then counted by its batch, which may have changed since the row before.
    """
    if any(file.suffix in (".json", ".parquet") for file in folder.rglob("*")):
        with pytest.raises(InputError) as error:
            imported([folder], written)
        assert "\n" not in str(error.value)
        return
    table, report = imported([folder], written)
    assert report.status == "cut" and len(table) >= 3
    wanted = expected(rows, written).set_index("step", drop=False).loc[table["step"]]
    wanted = wanted.reset_index(drop=True).where(table.notna())  # what was cut off, or had been
    last, (before, end) = table.index[-1], table["batch"].iloc[-2:]
    if before != end:
        steps = table["step"].diff().at[last]
        assert abs(wanted.at[last, "tokens"] - table.at[last, "tokens"]) < steps * end * 64
        wanted.at[last, "tokens"] = table.at[last, "tokens"]
    assert_same(table.drop(columns="status"), wanted[[c for c in table if c != "status"]])


def seeds(name: str, mutations: int) -> range:
    """As many as make so many mutations of a format, by all of its writers."""
    writers = [written for written in FORMATS.values() if written.format == FORMATS[name].format]
    each = sum(len(mutations_of(written)) + 1 for written in writers)
    return range(-(-mutations // each))


@pytest.mark.parametrize("name", FORMATS)
def test_mutations_end_as_declared(tmp_path, name):
    for seed in seeds(name, 40):
        mutate(name, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_mutations_end_as_declared(tmp_path, name):
    for seed in seeds(name, 2000):
        mutate(name, tmp_path, 100 + seed)
