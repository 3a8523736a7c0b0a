"""Bytes and words of the samples changed at random: a table or one line, never a traceback."""

import re

import numpy as np
import pytest

from bss.errors import InputError
from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from tests.importers.test_samples import SAMPLES

FILES = sorted(file for file in SAMPLES.rglob("*") if file.is_file() and file.suffix != ".yaml")
WORDS = (b"", b"nan", b"-inf", b"1e400", b"-1", b"0", b"1.5", b"x", b"null", b"[1]", b"{}", b'"a"')
COUNTS = (b"99999999999999999999999", b"1_000", "\u0663".encode())


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes overwritten, a number replaced, a line cut, glued to the next, or lines shuffled."""
    lines = data.split(b"\n")
    i = int(rng.integers(len(lines)))
    at = int(rng.integers(len(data)))
    numbers = list(re.finditer(rb"\d[\d.eE+-]*", data))
    found = numbers[int(rng.integers(len(numbers)))]
    word = (*WORDS, *COUNTS)[int(rng.integers(len(WORDS) + len(COUNTS)))]
    cut = lines[i][: int(rng.integers(len(lines[i]) + 1))]
    kinds = (
        data[:at] + rng.bytes(3) + data[at + 3 :],
        data[: found.start()] + word + data[found.end() :],
        b"\n".join([*lines[:i], cut, *lines[i + 1 :]]),
        b"\n".join([*lines[:i], b"".join(lines[i : i + 2]), *lines[i + 2 :]]),
        b"\n".join(lines[j] for j in rng.permutation(len(lines))),
    )
    return kinds[int(rng.integers(len(kinds)))]


def import_damaged(tmp_path, file, seed: int) -> None:
    rng = np.random.default_rng(seed)
    path = tmp_path / file.name
    data = file.read_bytes()
    for _ in range(int(rng.integers(1, 4))):
        data = damaged(data, rng)
    path.write_bytes(data)
    options = LogOptions(Batches.parse(["*=8"]), 64) if rng.random() < 0.8 else LogOptions()
    tables, told = [], ""
    try:
        tables = [frame for frame, _ in import_runs(read_logs([path], ANY, options)[0], options)]
    except InputError as error:
        told = str(error)
    assert bool(tables) != bool(told) and "\n" not in told, (file.name, seed)
    for table in tables:
        counts = table[["step", "tokens", "batch"]].to_numpy(float)
        losses = table.filter(["loss", "eval_loss"]).to_numpy(float)
        assert np.isfinite(counts).all() and not (losses <= 0).any(), (file.name, seed)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_damage_is_told_in_a_line(tmp_path, file):
    for seed in range(5):
        import_damaged(tmp_path, file, seed)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_much_damage_is_told_in_a_line(tmp_path, file):
    for seed in range(50):
        import_damaged(tmp_path, file, 100 + seed)
