"""Tables at any width: every number whole, one unit a column."""

import re
import shlex

import pytest

from bss.cells import Table
from bss.cli import main
from bss.cli.console import lines
from bss.cli.output import Show, emit

PLAN = 'plan --tokens 10B --seq-len 2048 --batch "0:256 2B:512 6B:768" --lr 4e-3 --beta2 .97'
COMMANDS = [
    PLAN,
    "rules --params 85M --tokens 2.5B --seq-len 1024 --batch-tokens 128K --lr 1e-3 --to 512K",
    "advise --params 85M --tokens 2.5B --seq-len 1024",
    "models",
    "theory optimal --source .3 --capacity 4 --max-batch 8 --data 2^14",
    "points results/demo/runs.parquet --targets 1.9,1.7",
    "predict --from results/late_switch/fit.json --batch 8 --tokens 1M --lr 2e-3",
    "import auto tests/samples/wandb-chart.csv -o {out}/o.csv --seq-len 64 --batch 8",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_no_number_is_cut_at_any_width(line, capsys, monkeypatch, tmp_path):
    outputs = []
    monkeypatch.setattr("bss.cli.app.emit", lambda output, _: outputs.append(output))
    assert main(shlex.split(line.format(out=tmp_path))) == 0

    def numbers(width):
        monkeypatch.setenv("COLUMNS", str(width))
        emit(outputs[0], Show())
        text = capsys.readouterr().out
        assert "…" not in text
        return set(re.findall(r"[-+]?\d[\d,.]*\d|\d", text))

    whole = numbers(10_000)
    assert all(numbers(width) <= whole for width in (60, 80, 100, 140))


@pytest.mark.parametrize("line", COMMANDS)
def test_every_column_has_a_name(line, monkeypatch, tmp_path):
    outputs = []
    monkeypatch.setattr("bss.cli.app.emit", lambda output, _: outputs.append(output))
    assert main(shlex.split(line.format(out=tmp_path))) == 0
    for table in outputs[0].tables:
        assert not {"", "of", "by", "from"} & set(table.columns)


def test_columns_that_do_not_fit_are_named():
    columns = ("run", "batch", "tokens", "loss", "status")
    table = Table("runs", columns, [("a" * 20, 8, 1_000_000, 2.5, "finished")])
    for width in (40, 60, 80):
        printed = "\n".join(lines(table, width))
        assert max(map(len, printed.splitlines()[:-2])) <= width
        assert all(column in printed for column in columns)
    assert "finished" in "\n".join(lines(table, 80))
    assert "finished" not in "\n".join(lines(table, 45))
