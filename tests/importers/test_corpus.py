"""Every shape of log in tests/corpus, against what it is to give."""

import json
from pathlib import Path

import pytest

from bss.errors import InputError
from bss.importers import IMPORTERS, LogOptions
from bss.importers.batches import Batches
from bss.importers.log import head_of
from bss.tables import read_runs
from tests.cli.called import printed, refused
from tests.importers.imported import the_run

CORPUS = Path(__file__).parents[1] / "corpus"
EXPECTED: dict[str, dict] = json.loads((CORPUS / "expected.json").read_text(encoding="utf-8"))
READ = [name for name, wanted in EXPECTED.items() if "refused" not in wanted]
MOST_LINES = 40


def files_of(name):
    path = CORPUS / name
    return [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())


def test_every_file_is_expected_and_small():
    expected = {file for name in EXPECTED for file in files_of(name)}
    there = {file for file in CORPUS.rglob("*") if file.is_file()}
    assert there - expected == {CORPUS / "expected.json", CORPUS / "README.md"}
    assert max(file.read_bytes().count(b"\n") for file in expected) <= MOST_LINES
    told = (CORPUS / "README.md").read_text(encoding="utf-8")
    assert [name for name in EXPECTED if f"`{name}`" not in told] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_one_format_takes_it_first(name):
    """By name alone it may be read by others; `auto` asks them in the registry's order."""
    if EXPECTED[name]["format"] == "lines":  # described on the command line
        return
    for file in files_of(name):
        head = head_of(file)
        takers = [known for known, importer in IMPORTERS.items() if importer.reader(file, head, {})]
        assert takers[:1] == [EXPECTED[name]["format"]], takers


@pytest.mark.parametrize("name", READ)
def test_auto_reads_it(name, tmp_path, capsys):
    wanted = EXPECTED[name]
    out = str(tmp_path / "runs.parquet")
    format = "lines" if wanted["format"] == "lines" else "auto"
    told = printed(capsys, "import", format, str(CORPUS / name), "-o", out, *wanted["arguments"])
    [run] = told["runs"]
    assert not [note for note in run["notes"] if "resemble rows" in note] and not run["warnings"]
    table = read_runs(out)
    losses = None if "loss" in run["missing"] else table["loss"].dropna()
    held_out = None if "eval_loss" in run["missing"] else table["eval_loss"].dropna()
    read = {
        "run": run["run"],
        "rows": len(table),
        "steps": int(table["step"].iloc[-1]),
        "tokens": int(table["tokens"].iloc[-1]),
        "loss": None if losses is None else losses.iloc[-1],
        "eval_loss": None if held_out is None else held_out.iloc[-1],
        "evaluations": 0 if held_out is None else len(held_out),
        "batch": run["batch"],
        "status": run["status"],
    }
    assert read == {key: value for key, value in wanted.items() if key in read}


def test_decimal_commas_are_told(tmp_path, capsys):
    out = str(tmp_path / "runs.csv")
    told = printed(capsys, "import", "auto", str(CORPUS / "decimal-comma.csv"), "-o", out,
                   *EXPECTED["decimal-comma.csv"]["arguments"])  # fmt: skip
    assert told["runs"][0]["notes"][0].startswith("commas are decimal: ")


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(READ)))
def test_what_says_too_little_is_refused_with_a_remedy(name, tmp_path, capsys):
    wanted = EXPECTED[name]
    out = str(tmp_path / "runs.parquet")
    line = refused(capsys, "import", "auto", str(CORPUS / name), "-o", out, *wanted["arguments"])
    assert wanted["refused"] in line


def plain(tmp_path, text, **columns):
    (tmp_path / "a.csv").write_text(text)
    options = LogOptions(Batches.parse(["8"]), 64, columns=columns)
    return the_run([tmp_path / "a.csv"], options, "plain")[0]


def test_a_table_of_several_runs(tmp_path, capsys):
    text = "name,step,loss\nbig,10,5.0\nbig,20,4.0\nsmall,10,5.1\nsmall,20,4.2\n"
    (tmp_path / "a.csv").write_text(text)
    given = ["--batch", "8", "--seq-len", "64", "--columns", "run=name"]
    told = printed(
        capsys, "import", "plain", str(tmp_path / "a.csv"), "-o", str(tmp_path / "o.csv"), *given
    )
    assert [(run["run"], run["rows"], run["tokens"]) for run in told["runs"]] == [
        ("big", 2, 10240),
        ("small", 2, 10240),
    ]
    with pytest.raises(InputError, match="no metric trial for run; it has name, step, loss"):
        plain(tmp_path, text, run="trial")


@pytest.mark.parametrize(
    "text",
    [
        "name,tokens,lr,loss\na,1000,0.1,3.2\nb,1000,0.2,3.1\nc,1000,0.4,3.3\n",
        "step,loss\n100,3.2\n",
    ],
)
def test_results_of_a_sweep_are_no_curves(tmp_path, text):
    with pytest.raises(InputError, match="is not recognised"):
        plain(tmp_path, text)


RUN_TABLE = """run,seq_len,step,batch,loss
a,64,10,8,5.25
b,64,10,8,5.5
a,64,20,8,4.75
a,64,10,8,5.25
a,64,20,8,4.75
b,64,20,8,4.5
"""


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_run_table_is_read_where_it_is_named(separator, tmp_path, capsys):
    """With what its rows repeat; in a directory too, but not what this import has written there."""
    text = RUN_TABLE.replace(",", separator)
    text = text if separator == "," else text.replace(".", ",")
    table, out = tmp_path / "t" / "a.csv", str(tmp_path / "o.csv")
    table.parent.mkdir()
    table.write_text(text)
    told = printed(capsys, "import", "auto", str(table), "-o", out)
    ends = [(run["run"], run["rows"], run["tokens"]) for run in told["runs"]]
    assert ends == [("a", 2, 10240), ("b", 2, 10240)]
    if separator == ",":
        out = str(table.parent / "o.csv")
        for _ in range(2):
            again = printed(capsys, "import", "auto", str(table.parent), "-o", out)
            assert [(run["run"], run["rows"], run["tokens"]) for run in again["runs"]] == ends
        assert "is the table that this import writes" in str(again["skipped"])
    else:
        line = refused(capsys, "fit", "es", str(table))
        assert "or let `bss import plain` read it" in line
    table.write_text(text.replace(f"a{separator}64{separator}20", f"a{separator}32{separator}20"))
    line = refused(capsys, "import", "auto", str(table), "-o", str(tmp_path / "o.csv"))
    assert "seq_len of run a is 32 and 64; expected one count" in line


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("20,4.0,1", "line 3: has 3 cells; expected 2"),
        ("20,high", "line 3: loss is 'high'; expected a number"),
    ],
)
def test_a_damaged_row_of_a_table_is_refused_by_its_line(tmp_path, row, says):
    with pytest.raises(InputError, match=says):
        plain(tmp_path, f"step,loss\n10,5.0\n{row}\n{row}\n30,3.0\n")


@pytest.mark.parametrize(
    "text",
    [
        "validation loss: 3.2\n",
        "100 train images\n20 val images\n",
        "step 0: train loss 4.XX, val loss 4.XX\n",
    ],
)
def test_a_line_of_anyone_s_is_no_log(tmp_path, text):
    (tmp_path / "a.log").write_text(text)
    with pytest.raises(InputError, match="is not recognised"):
        the_run([tmp_path / "a.log"], LogOptions(Batches.parse(["8"]), 64), "auto")
