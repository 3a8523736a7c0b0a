"""Every log of the corpus, cut or with a damaged byte: no row is lost without a word."""

import math
from pathlib import Path

import numpy as np
import pytest

from bss.errors import InputError
from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from bss.importers.formats import own_lines
from tests.importers.test_corpus import EXPECTED, READ, files_of

LOGS = [name for name in READ if len(files_of(name)) == 1]
MOST_ENDS = 8
"""Of the line ends of a log, about so many are cut at: their cost grows with the log's square."""
BLOCKS = ("olmo", "composer")
"""Formats whose row is several lines: a cut between them is the end of a block."""


class Shape:
    """A log of the corpus, and how it is read."""

    def __init__(self, name: str, folder: Path):
        given = EXPECTED[name]["arguments"]
        options = dict(zip(given[::2], given[1::2], strict=True))
        batch, length = options.get("--batch"), options.get("--seq-len")
        self.options = LogOptions(Batches.parse([batch or "8"]), int(length or 64))
        self.log_options = LogOptions(
            Batches.parse([batch] if batch else []), int(length or 0) or None
        )
        self.importer = ANY
        if EXPECTED[name]["format"] == "lines":
            lines = (options.get(f"--{line}-line", "") for line in ("train", "eval"))
            self.importer = own_lines(*lines)
        file = files_of(name)[0]
        self.data = file.read_bytes()
        self.end = b"\n" if b"\n" in self.data else b"\r"
        self.path = folder / file.parent.name / file.name
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def read(self, data: bytes) -> tuple[list, tuple]:
        """Return the losses by step of each run, and what is reported; no run if it is refused.

        A cut may leave too little to know the batch: then it is given.
        """
        self.path.write_bytes(data)
        for options in (self.log_options, self.options):
            try:
                logs, _ = read_logs([self.path], self.importer, options)
                runs = list(import_runs(logs, options))
            except InputError:
                continue
            losses = [
                [(s, column, value) for column in ("loss", "eval_loss") if column in table
                 for s, value in zip(table["tokens"], table[column], strict=True)
                 if math.isfinite(value)]
                for table, _ in runs
            ]  # fmt: skip
            told = [
                (
                    r.status,
                    r.notes,
                    r.warnings,
                    r.missing,
                    r.restarts,
                    r.superseded,
                    r.duplicates,
                    *(file.left_out for file in r.files),
                )
                for _, r in runs
            ]
            return losses, tuple(told)
        return [], ()


def check_cuts(shape: Shape, name: str, rng: np.random.Generator, ends: slice, count: int) -> None:
    """Cut at line ends and between: the rows before are read, and the cut is reported."""
    at_ends = [i + 1 for i, byte in enumerate(shape.data) if bytes([byte]) == shape.end][ends]
    before: dict[int, list] = {}
    for at in [*at_ends, *map(int, rng.integers(1, len(shape.data), count))]:
        end = shape.data.rfind(shape.end, 0, at) + 1
        if end not in before:
            before[end], _ = shape.read(shape.data[:end])
        whole = before[end]
        if at == end:
            continue
        losses, reported = shape.read(shape.data[:at])
        if not shape.data[end:at].strip():
            assert losses == whole, (name, at)
        elif losses != whole:  # a last row that is whole without its line end, or nothing at all
            more = not whole or not losses or len(losses[0]) > len(whole[0])
            assert more or EXPECTED[name]["format"] in BLOCKS, (name, at)
        elif losses:
            assert {status for status, *_ in reported} <= {"cut", "diverged"}, (name, at)


def check_bytes(shape: Shape, name: str, rng: np.random.Generator, count: int) -> None:
    """Damage a byte: no loss goes without being reported."""
    whole, reported = shape.read(shape.data)
    values = sum(map(len, whole))
    for at in map(int, rng.integers(0, len(shape.data), count)):
        byte = bytes([int(rng.integers(32, 127))])
        losses, now = shape.read(shape.data[:at] + byte + shape.data[at + 1 :])
        lost = losses and sum(map(len, losses)) < values and now == reported
        assert not lost, (name, at, byte)


@pytest.mark.parametrize("name", LOGS[::24])  # all of them are among the slow tests
def test_a_cut_or_damaged_log_loses_nothing_in_silence(tmp_path, name):
    shape, rng = Shape(name, tmp_path), np.random.default_rng(0)
    check_cuts(shape, name, rng, slice(None, None, 10), 3)
    check_bytes(shape, name, rng, 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_cuts_and_damages_of_every_log_are_reported(tmp_path, name):
    shape, rng = Shape(name, tmp_path), np.random.default_rng(1)
    every = max(shape.data.count(shape.end) // MOST_ENDS, 1)
    check_cuts(shape, name, rng, slice(int(rng.integers(every)), None, every), 4)
    check_bytes(shape, name, rng, 8)


def test_there_are_160_shapes():
    assert len(EXPECTED) >= 160
