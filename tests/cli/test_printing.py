"""Tables at any width: every number whole, one unit a column."""

import re
import shlex

import pytest

from bss.cells import Table
from bss.cli import main
from bss.cli.output import emit
from bss.cli.printing import lines, places
from bss.units import format_tokens

PLAN = 'plan --tokens 10B --seq-len 2048 --batch "0:256 2B:512 6B:768" --lr 4e-3 --beta2 .97'
COMMANDS = [
    PLAN,
    "rules --params 85M --tokens 2.5B --seq-len 1024 --batch-tokens 128K --lr 1e-3 --to 512K",
    "advise --params 85M --tokens 2.5B --seq-len 1024",
    "models",
    "theory switch --source .3 --capacity 4 --max-batch 8 --data 2^12:2^14",
    "points results/demo/runs.parquet --targets 1.9,1.7",
    "predict --from results/late_switch/fit.json --batch 8 --tokens 1M --lr 2e-3",
    "import auto tests/samples/wandb-chart.csv -o {out}/o.csv --seq-len 64 --batch 8",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_no_number_is_cut_at_any_width(line, capsys, monkeypatch, tmp_path):
    outputs = []
    monkeypatch.setattr("bss.cli.emit", lambda output, **_: outputs.append(output))
    assert main(shlex.split(line.format(out=tmp_path))) == 0

    def numbers(width):
        monkeypatch.setenv("COLUMNS", str(width))
        emit(outputs[0], as_json=False, plot=None)
        text = capsys.readouterr().out
        assert "…" not in text
        tables, _, _ = text.rpartition("\n\n")  # notes are lines as they are
        cells = [row for row in tables.splitlines() if row.startswith("  ")]
        assert all(places(row) <= width for row in cells if len(row.split()) > 1)
        return set(re.findall(r"[-+]?\d[\d,.]*\d|\d", text))

    whole = numbers(10_000)
    assert all(numbers(width) == whole for width in (60, 80, 100, 140))


@pytest.mark.parametrize(("columns", "width"), [(None, 140), ("", 140), ("wide", 140), ("70", 70)])
def test_the_width_of_a_pipe_is_that_of_columns(columns, width, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(shlex.split(PLAN)) == 0
    table = capsys.readouterr().out
    stacked = "    bucket × n 32 × 8, lr 0.004 → 0.004" in table or "    lr 0.004" in table
    assert stacked == (width == 70)


def test_a_column_has_one_unit_and_what_is_no_count_stays():
    counts = [format_tokens(n) for n in (250_000_000, 1_500_000_000, 0)]
    rows = [["a", count] for count in (*counts, "–", format_tokens(10**12, "> "))]
    column = [
        line.split(maxsplit=1)[1] for line in lines(Table("", ("", "n"), rows), 80) if "a" in line
    ]
    assert [cell.strip() for cell in column] == ["250M", "1,500M", "0M", "–", "> 1,000,000M"]


def test_wide_characters_take_two_places_and_a_long_word_is_whole():
    table = Table("", ("run", "loss", "by"), [("実験", "1.25", "x" * 50), ("a", "12.5", "y z")])
    head, _, first, *under, second, last, _ = lines(table, 20)
    assert (head, first, second) == ("  run   loss", "  実験  1.25", "  a     12.5")
    assert [row.strip() for row in under] == ["by", "x" * 50] and last == "    by y z"
