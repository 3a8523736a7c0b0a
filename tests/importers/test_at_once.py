"""A CSV file that is read at once has the cells of the same file read by rows."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bss.errors import InputError
from bss.importers import table
from bss.importers.at_once import columns_at_once
from bss.importers.lines import Cells

CELLS = st.sampled_from(
    ["1", "2.5", " 3 ", "+4", "1e400", "-1e-400", "nan", "-NaN", "inf", "", "-", "None", "N/A",
     "1_0", "1,024", "0x1", '"5"', "a b", "1.7976931348623159e308", "0.10000000000000000555"]
)  # fmt: skip
LINES = st.sampled_from(
    ["{}\n", "{}\r\n", "{}\r", "{}", "\n{}\n", "# {}\n", "{},7\n", "\x1b[0m{}\n"]
)
ROWS = st.lists(st.tuples(st.lists(CELLS, min_size=3, max_size=3), LINES), max_size=6)


def _read(file: Path, *, at_once: bool) -> Cells | str:
    """Return the cells of a file, or the error of a damaged one."""
    with pytest.MonkeyPatch.context() as patch:
        if not at_once:
            patch.setattr(table, "columns_at_once", lambda *_: None)
        try:
            return table.Delimited(file, "").read(["step", "loss"], ["run"])
        except InputError as error:
            return str(error)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.booleans())
def test_both_ways_read_the_same(tmp_path_factory, rows, plain):
    """Odd cells and lines are read, or refused, as by rows."""
    lines = [("{}\n" if plain else line).format(",".join(cells)) for cells, line in rows]
    file = tmp_path_factory.getbasetemp() / "log.csv"
    file.write_bytes("".join(["run,step,loss\n", *lines]).encode())
    fast = _read(file, at_once=True)
    slow = _read(file, at_once=False)
    if isinstance(slow, str) or isinstance(fast, str):
        assert fast == slow
        return
    assert fast.texts == slow.texts
    assert fast.numbers.keys() == slow.numbers.keys()
    for name, column in slow.numbers.items():
        np.testing.assert_array_equal(fast.numbers[name], column)
    np.testing.assert_array_equal(fast.lines, slow.lines)


def test_a_plain_file_is_read_at_once(tmp_path):
    """Lines count from the header, NaN is infinite and an empty cell is missing."""
    file = tmp_path / "log.csv"
    file.write_bytes(b"\xef\xbb\xbfrun,step,loss\r\na,1,nan\r\nb,2,\r\n")
    cells = columns_at_once(file, ["run", "step", "loss"], ["step", "loss"], ["run"])
    assert cells is not None
    assert cells.texts == {"run": {0: "a", 1: "b"}}
    np.testing.assert_array_equal(cells.numbers["loss"], [np.inf, np.nan])
    np.testing.assert_array_equal(cells.lines, [2, 3])
