"""Logs and tables are data: a name `module:ATTRIBUTE` in them imports and calls nothing."""

import itertools
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from bss.errors import InputError
from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from bss.tables import read_points, read_runs
from bss.tables.joining import tables_in
from bss.tables.reading import Reading
from tests.importers.test_corpus import CORPUS, EXPECTED

EVIL = "evil_module_of_a_log"
NAME = f"{EVIL}:ATTRIBUTE"
TEXTS = [name for name in EXPECTED if (CORPUS / name).suffix in (".log", ".txt", ".jsonl", ".csv")]


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A module that can be imported from the working directory, and says so if it is."""
    (tmp_path / f"{EVIL}.py").write_text("open('imported', 'w').close()\nATTRIBUTE = print\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    assert EVIL not in sys.modules and not (tmp_path / "imported").exists()


def read(path):
    """What reads a log may refuse it, in a line."""
    options = LogOptions(Batches.parse(["8"]), 64)
    for name in (options, LogOptions()):
        try:
            list(import_runs(read_logs([path], ANY, name)[0], name))
        except InputError:
            continue


@pytest.mark.parametrize("name", TEXTS[::13])
def test_logs_with_names_of_modules_in_every_line(guarded, name):
    lines = (CORPUS / name).read_text(encoding="utf-8", errors="replace").splitlines()
    for at in range(min(len(lines), 4)):
        planted = [*lines[:at], lines[at] + f" {NAME} optimizer={NAME}", NAME, *lines[at:]]
        (guarded / Path(name).name).write_text("\n".join(planted) + "\n")
        read(guarded / Path(name).name)


def planted_rows():
    """Rows with such a name in each column in turn, and as the name of a column."""
    row = {"run": "a", "model": "m", "seed": 3, "batch": 8, "seq_len": 64, "step": 1, "loss": 3.0}
    row |= {"name": "loss", "metric": "loss", "value": 3.0, "optimizer": "adam", "status": "cut"}
    for column in row:
        yield [{**row, "step": step, column: NAME} for step in (1, 2, 3)]
    yield [{**row, "step": step, NAME: NAME} for step in (1, 2, 3)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_tables_with_names_of_modules_in_every_field(guarded, suffix):
    """Each column of a CSV; of the others every third, as all are read alike."""
    path = guarded / f"t{suffix}"
    for rows in itertools.islice(planted_rows(), 0, None, 1 if suffix == ".csv" else 3):
        table = pd.DataFrame(rows)
        if suffix == ".csv":
            table.to_csv(path, index=False)
        elif suffix == ".parquet":
            table.astype(str).to_parquet(path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        read(path)
        for reader in (read_runs, read_points, lambda one: tables_in(one.parent, Reading())):
            try:
                reader(path)
            except InputError:
                continue


def test_settings_of_trackers_and_trainers(guarded):
    settings = {"model_class": NAME, "trainer": {"_target_": NAME}, "seq_length": NAME}
    history = [{"_step": i, "train/loss": 4.0 - i, "optimizer": NAME} for i in (1, 2)]
    (guarded / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    text = json.dumps({name: {"value": value} for name, value in settings.items()})
    (guarded / "run.yaml").write_text(text)
    read(guarded / "run.jsonl")
    (guarded / "run.yaml").write_text(f"!!python/object/apply:{EVIL}.ATTRIBUTE [1]\n")
    read(guarded / "run.jsonl")
    state = {"log_history": [{"step": i, "loss": 4.0 - i, "cls": NAME} for i in (1, 2)]} | settings
    (guarded / "trainer_state.json").write_text(json.dumps(state))
    read(guarded / "trainer_state.json")


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 20_000,
        "\n".join([
            "a0: &a0 {x: 1}",
            *(f"a{i}: &a{i} {{{', '.join(f'k{k}: *a{i - 1}' for k in range(9))}}}"
              for i in range(1, 9)),
        ]),
    ],
)  # fmt: skip
def test_settings_of_endless_size_are_refused_in_a_line(guarded, text):
    history = [{"_step": i, "train/loss": 4.0 - i} for i in (1, 2)]
    (guarded / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    (guarded / "run.yaml").write_text(text + "\n")
    with pytest.raises(InputError, match=r"run\.yaml: (is not YAML|has over 100,000 settings)"):
        read_logs([guarded / "run.jsonl"], ANY, LogOptions())
