"""What must not change the runs of a log, for a sample of every format in the registry.

A change gives the same runs, or a refusal with a reason, or says what is left out. A format without
a sample fails.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest

from bss.errors import InputError
from bss.importers import ANY, IMPORTERS, Importer, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches
from bss.importers.log import AnyOf, head_of
from bss.importers.names import declared
from bss.importers.tensorboard import EventFiles
from bss.importers.wandb import WandbExports
from tests.importers.test_corpus import CORPUS, EXPECTED, READ, RUN_TABLE, files_of
from tests.importers.writers import events, rows_of_run


@dataclass(frozen=True)
class Sample:
    """A log: its format, its file below a directory of its own, and the options that it needs."""

    format: str
    file: str
    arguments: tuple[str, ...] = ()
    write: Callable[[Path], None] | None = None

    def put(self, folder: Path, data: bytes | None = None) -> Path:
        """Write the sample, or changed data, below a directory whose name is always one."""
        path = folder / "place" / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.write is not None and data is None:
            self.write(path)
        else:
            path.write_bytes((CORPUS / self.file).read_bytes() if data is None else data)
        return path

    @property
    def options(self) -> LogOptions:
        """The options as the corpus has them."""
        given = dict(zip(self.arguments[::2], self.arguments[1::2], strict=True))
        batch, length = given.get("--batch"), given.get("--seq-len")
        return LogOptions(Batches.parse([batch] if batch else []), int(length or 0) or None)


def corpus(file: str) -> Sample:
    wanted = EXPECTED.get(file) or EXPECTED[file.split("/")[0]]
    return Sample(wanted["format"], file, tuple(wanted["arguments"]))


def write_events(path: Path) -> None:
    rows = rows_of_run(0, 9)
    written = events(path.parent, rows)
    if written != path:
        written.rename(path)


def write_runs(path: Path) -> None:
    path.write_text(RUN_TABLE)


ONE_BATCH = ("--batch", "8", "--seq-len", "64")


def write_page(path: Path) -> None:
    """A scalar as TensorBoard's page saves it."""
    rows = "".join(f"{1000.0 + i},{10 * i},{4 - i / 8}\n" for i in range(1, 9))
    path.write_text(f"Wall time,Step,Value\n{rows}")


TABLES = [
    corpus("foundry-history.csv"),
    corpus("lightning-history.jsonl"),
    corpus("long-mlflow.csv"),
    corpus("csv-samples.csv"),
    corpus("json-lingua.jsonl"),
    Sample("bss", "runs.csv", (), write_runs),
]
DECLARED = [
    corpus(form["sample"])
    for declaration in declared("formats.toml").values()
    for form in declaration.get("forms", ())
]
TEXTS = [corpus("hf-bars.log"), corpus("hf-logging-steps.log"), *DECLARED]
OTHERS = [
    *map(corpus, [
        "hf-state/trainer_state.json", "hf-notebook.ipynb", "llama3_cuda.txt",
        "golden/golden_values_dev_dgx_h100.json",
    ]),
    Sample("tensorboard", "run-a-tag-train_loss.csv", ONE_BATCH, write_page),
    Sample("tensorboard", "run/events.out.tfevents.1.host", ("--seq-len", "64"), write_events),
]  # fmt: skip
SAMPLES = [*TABLES, *TEXTS, *OTHERS]
KINDS = [
    *map(corpus, [
        "mllog-result.txt", "olmo-7b.log", "levanter-marin.log", "composer-console.log",
        "neox-pythia.log", "slowrun.out", "litgpt.log", "clu.log",
    ]),
]  # fmt: skip
ONE_OF_A_KIND = [*TABLES, *TEXTS[:2], *KINDS, *OTHERS]
"""Samples of each way of reading; other formats differ in their declarations."""
quick_texts = pytest.mark.parametrize(
    "sample",
    [
        pytest.param(sample, marks=[] if sample in ONE_OF_A_KIND else pytest.mark.slow)
        for sample in (*TABLES, *TEXTS)
    ],
    ids=lambda sample: sample.file,
)
"""Tables and texts; all but one of a kind are slow tests."""


def leaves(importer: Importer) -> Iterator[Importer]:
    """The importers of which one is made."""
    for one in importer.importers if isinstance(importer, AnyOf) else [importer]:
        yield from leaves(one) if isinstance(one, AnyOf) else [one]


def test_every_format_has_a_sample(tmp_path):
    read = []
    for sample in SAMPLES:
        path = sample.put(tmp_path / str(len(read)))
        read.append(IMPORTERS[sample.format].reader(path, head_of(path), {}))
    assert None not in read
    for name, importer in IMPORTERS.items():
        own = [one for one in leaves(importer) if not isinstance(one, WandbExports | EventFiles)]
        missing = [one.about for one in own or [importer] if not any(one is r for r in read)]
        assert not missing, f"{name}: add a sample of {missing} to {Path(__file__).name}"


Runs = dict[str, pd.DataFrame]


def runs_of(sample: Sample, *paths: Path) -> tuple[Runs, list]:
    """The table of every run, and the reports."""
    logs, _ = read_logs([*paths], ANY, sample.options)
    found = [*import_runs(logs, sample.options)]
    return {report.run: table.drop(columns="run") for table, report in found}, [r for _, r in found]


@cache
def runs_as_given(sample: Sample) -> tuple[Runs, list]:
    """The runs of a sample as it is."""
    with TemporaryDirectory() as folder:
        return runs_of(sample, sample.put(Path(folder)))


def assert_same(found: Runs, wanted: Runs, **columns: bool) -> None:
    assert found.keys() == wanted.keys()
    for name, table in found.items():
        pd.testing.assert_frame_equal(table, wanted[name], **columns)


def changed(sample: Sample, folder: Path, data: bytes) -> tuple[Runs, list] | None:
    """The runs of changed data; None if it is refused in a line with a reason."""
    path = sample.put(folder, data)
    refused = ""
    try:
        return runs_of(sample, path)
    except InputError as error:
        refused = str(error)
    assert "\n" not in refused and path.name in refused
    return None


def bytes_of(sample: Sample, folder: Path) -> bytes:
    return sample.put(folder).read_bytes()


CHATTER = b"[wandb] syncing run to the cloud, 3 files\n"


def with_chatter(data: bytes) -> bytes:
    """A line of another tool after every second line."""
    lines = data.splitlines(keepends=True)
    return b"".join(line + CHATTER * (i % 2) for i, line in enumerate(lines))


def windows(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def marked(data: bytes) -> bytes:
    """A byte-order mark before the text."""
    return b"\xef\xbb\xbf" + data


def on_windows(data: bytes) -> bytes:
    return marked(windows(data))


CHANGES = {"windows": windows, "bom": marked, "chatter": with_chatter}


@quick_texts
def test_line_ends_marks_and_chatter_change_no_run(tmp_path, sample):
    """All at once; each by itself is among the slow tests."""
    change = (lambda data: on_windows(with_chatter(data))) if sample in TEXTS else on_windows
    data = bytes_of(sample, tmp_path)
    wanted, _ = runs_as_given(sample)
    result = changed(sample, tmp_path, change(data))
    if sample in TEXTS:
        assert result is not None
    if result is not None:
        assert_same(result[0], wanted)


@quick_texts
def test_without_the_last_line_end(tmp_path, sample):
    """The last row is there, or the run is cut and the row is counted as left out."""
    wanted, before = runs_as_given(sample)
    found, reports = runs_of(sample, sample.put(tmp_path, bytes_of(sample, tmp_path).rstrip()))
    assert found.keys() == wanted.keys()
    read, all_read = (sum(f.read for r in each for f in r.files) for each in (reports, before))
    assert read >= all_read  # its line may have been no row
    for name, table in found.items():
        cut = {report.status for report in reports} == {"cut"}
        assert len(wanted[name]) - len(table) in ((0, 1) if cut else (0,))
        columns = [column for column in table if column != "status"]
        rows = len(wanted[name]) - cut
        pd.testing.assert_frame_equal(
            table[columns].head(rows), wanted[name][columns].head(rows), check_dtype=False
        )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_one_sample_is_one_run_and_every_row_is_counted(sample):
    found, reports = runs_as_given(sample)
    assert len(found) == (2 if sample.format == "bss" else 1)
    for report in reports:
        for file in report.files:
            assert file.read == file.kept + sum(file.left_out.values())
            assert file.kept >= report.rows


@quick_texts
def test_two_samples_in_one_file_are_two_runs(tmp_path, sample):
    """A table that names its runs has the same rows twice; else the second is NAME#2."""
    if sample.format == "bss":
        return  # of several runs
    data = bytes_of(sample, tmp_path)
    wanted, _ = runs_as_given(sample)
    [(name, table)] = wanted.items()
    found, _ = runs_of(sample, sample.put(tmp_path, data + data))
    named = name not in (Path(sample.file).stem, Path(sample.file).parent.name, "place")
    assert [*found] == ([name] if named else [name, f"{name}#2"])
    for one in found.values():
        pd.testing.assert_frame_equal(one, table)


@pytest.mark.parametrize("sample", ONE_OF_A_KIND, ids=lambda sample: sample.file)
def test_files_in_another_order_are_the_same_runs(tmp_path, sample):
    paths = [sample.put(tmp_path / name) for name in ("b", "a")]
    names_its_runs = sample.file in ("long-mlflow.csv", "run-a-tag-train_loss.csv")
    if names_its_runs or sample.format == "bss":
        with pytest.raises(InputError, match="occurs twice"):
            runs_of(sample, *paths)
        return
    first, _ = runs_of(sample, *paths)
    assert_same(runs_of(sample, tmp_path)[0], first)
    assert len(first) == 2


def test_every_file_of_a_directory_is_read_or_listed_once(tmp_path):
    """Samples of all formats and files of other kinds: none is in no list, or in both."""
    for number, sample in enumerate(SAMPLES):
        sample.put(tmp_path / f"{number:02}")
    others = {
        "empty.log": b"", "notes.txt": b"a word\n", "a.jsonl.gz": b"\x1f\x8b" + bytes(9),
        "plot.png": b"\x89PNG", "weights.pt": b"PK\x03\x04", "config.json": b'{"lr": 0.1}',
        "unknown.log": b"".join(b"n %d -> %.3f\n" % (i, 9 / (i + 1)) for i in range(1, 20)),
        ".hidden.csv": b"step,loss\n1,2\n",
    }  # fmt: skip
    for name, data in others.items():
        (tmp_path / name).write_bytes(data)
    logs, skipped = read_logs([tmp_path], ANY, LogOptions())
    read = {log.source for log in logs}
    left = [one.file for one in skipped]
    assert len(left) == len({*left}) and not read & {*left}
    assert read | {*left} == {str(file) for file in tmp_path.rglob("*") if file.is_file()}
    assert {Path(file).name for file in left} == {*others} and all(one.reason for one in skipped)
    unread = {Path(one.file).name for one in skipped if one.log}
    assert unread == {"a.jsonl.gz", "unknown.log"}


@pytest.mark.parametrize("sample", TABLES, ids=lambda sample: sample.file)
def test_one_row_more_or_less_is_one_row_more_or_less(tmp_path, sample):
    """Counted by lines of the file, whatever becomes of the row."""
    if sample.format == "long":
        return  # a row per value
    lines = bytes_of(sample, tmp_path).splitlines(keepends=True)
    before = sum(file.read for report in runs_as_given(sample)[1] for file in report.files)
    for at in range(2, len(lines), 3):
        for changed_lines, more in ((lines[:at] + lines[at + 1 :], -1), (lines[: at + 1], None)):
            result = changed(sample, tmp_path, b"".join(changed_lines))
            if result is None:
                continue
            read = sum(file.read for report in result[1] for file in report.files)
            kept = sum(file.kept for report in result[1] for file in report.files)
            assert kept <= read
            assert read == before + more if more else read == before - (len(lines) - at - 1)


def rearranged(data: bytes, more: bool) -> bytes:
    """A table with its columns in reverse order, or with one more that looks like a loss."""
    text = data.decode()
    if text.startswith("{"):
        rows = [json.loads(line) for line in text.splitlines()]
        rows = [{**row, "aux/zz_loss": 1.5} if more else dict([*row.items()][::-1]) for row in rows]
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    rows = [*csv.reader(io.StringIO(text))]
    told = [[*row, "aux/zz_loss" if i == 0 else "1.5"] for i, row in enumerate(rows)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(told if more else [row[::-1] for row in rows])
    return out.getvalue().encode()


@pytest.mark.parametrize("more", [False, True], ids=["reversed", "one more"])
@pytest.mark.parametrize("sample", TABLES, ids=lambda sample: sample.file)
def test_columns_of_tables(tmp_path, sample, more):
    """In another order they are the same; one that looks like a loss is named."""
    data = bytes_of(sample, tmp_path)
    wanted, _ = runs_as_given(sample)
    result = changed(sample, tmp_path, rearranged(data, more))
    if result is None:
        return
    found, reports = result
    for name, table in found.items():
        columns = list(wanted[name])
        pd.testing.assert_frame_equal(table[columns], wanted[name])
    if more and sample.format != "long":
        kept = any("aux_zz_loss" in table or "aux/zz_loss" in table for table in found.values())
        assert kept or all("aux/zz_loss" in report.unread for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in READ if EXPECTED[n]["format"] != "lines"])
def test_every_log_of_the_corpus(tmp_path, name):
    files = files_of(name)
    if len(files) > 1 or not {*EXPECTED[name]["arguments"][::2]} <= {"--batch", "--seq-len"}:
        pytest.skip("several files, or other options")
    file = str(files[0].relative_to(CORPUS))
    sample = Sample(EXPECTED[name]["format"], file, tuple(EXPECTED[name]["arguments"]))
    data = files[0].read_bytes()
    wanted, _ = runs_of(sample, sample.put(tmp_path))
    for change in CHANGES.values():
        result = changed(sample, tmp_path, change(data))
        if result is not None:
            assert_same(result[0], wanted)
