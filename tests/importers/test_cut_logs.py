"""Every log of the corpus, cut: read to there or one line, never a silent loss."""

import re
from pathlib import Path

import numpy as np
import pytest

from bss.errors import InputError
from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from tests.importers.test_corpus import CORPUS, EXPECTED, READ, files_of

LOGS = [file for name in READ if len(files_of(name)) == 1 for file in files_of(name)]
BROKEN = re.compile(r"olmo|torn|cancelled")
"""Files that end within a block of lines, or have a torn line."""
LINE_END = (b"\n", b"\r")


def options_of(file: Path) -> LogOptions:
    """What the corpus gives with a file; a batch where a cut leaves none."""
    name, folder = (str(path.relative_to(CORPUS)) for path in (file, file.parent))
    given = EXPECTED.get(name, EXPECTED.get(folder, {})).get("arguments", [])
    pairs = dict(zip(given[::2], given[1::2], strict=True))
    batches = Batches.parse([pairs["--batch"]] if "--batch" in pairs else [])
    length = int(pairs["--seq-len"]) if "--seq-len" in pairs else None
    return LogOptions(batches, length, otherwise=Batches.parse(["8"]))


def read(path: Path, data: bytes, options: LogOptions) -> tuple[list[tuple[str, list]], set[str]]:
    """Names and losses of runs, and how they ended; none of a file refused in one line."""
    path.write_bytes(data)
    runs, told = [], ""
    try:
        runs = list(import_runs(read_logs([path], ANY, options)[0], options))
    except InputError as error:
        told = str(error)
    assert bool(runs) != (told.splitlines() == [told])
    losses = [
        (report.run, table[["step", "loss"]].fillna(0).to_numpy().tolist())
        for table, report in runs
    ]
    return losses, {report.status for _, report in runs}


def cuts_of(data: bytes, rng: np.random.Generator, count: int) -> list[int]:
    """Every line's end, and so many places between."""
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    return [*ends[:: max(1, len(ends) // count)], *map(int, rng.integers(1, len(data), count))]


def counted(tmp_path: Path, file: Path, count: int) -> tuple[int, int]:
    """Cuts that are read to there, and that are refused; asserts that no other happens."""
    data, options = file.read_bytes(), options_of(file)
    path = tmp_path / file.parent.name / file.name
    path.parent.mkdir()
    rng, seen = np.random.default_rng(0), [0, 0]
    for at in cuts_of(data, rng, count):
        end = data.rfind(LINE_END[b"\n" not in data], 0, at) + 1
        runs, ended = read(path, data[:at], options)
        whole, _ = read(path, data[:end], options)
        if at == end or not data[end:at].strip():
            assert "cut" not in ended or BROKEN.search(file.name), (file.name, at)
        elif runs and data[at - 1 : at] not in b'}"':  # which may end a row
            assert ended <= {"cut", "diverged"}, (file.name, at)
            assert not whole or runs == whole, (file.name, at)
        elif runs:
            assert len(runs[0][1]) >= len(whole[0][1]), (file.name, at)
        else:
            assert not whole, (file.name, at, ended, whole)
        seen[not runs] += 1
    return seen[0], seen[1]


@pytest.mark.parametrize("file", LOGS[::6], ids=lambda file: file.name)
def test_a_cut_log_is_read_to_there(tmp_path, file):
    assert sum(counted(tmp_path, file, 2)) >= 3


@pytest.mark.slow
def test_no_cut_loses_a_run_in_silence(tmp_path):
    seen = []
    for i, file in enumerate(LOGS):
        (tmp_path / str(i)).mkdir()
        seen.append(counted(tmp_path / str(i), file, 50))
    read_to_there, refused = np.sum(seen, axis=0)
    assert read_to_there > refused and read_to_there + refused > 4000
