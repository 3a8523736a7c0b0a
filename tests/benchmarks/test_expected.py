"""Expected times of the committed rows: the rates in the table of targets are theirs."""

from pathlib import Path

import pytest

from benchmarks.accelerator.show import told_rows
from benchmarks.expected import main, ratios, reached, steps
from bss.machines.targets import Reached, target_of

FILE = Path(__file__).parents[2] / "benchmarks/results/accelerator/h100.jsonl"
ROWS = told_rows(FILE)


def test_the_rates_of_the_table_are_those_of_the_rows():
    target = target_of("NVIDIA H100 80GB HBM3")
    assert target and target.reached
    assert vars(target.reached) == pytest.approx(vars(reached(ROWS)), rel=1e-3)


def test_launches_of_nano_narrow_the_rows_they_were_not_made_from():
    by = reached(ROWS)
    plain = ratios(ROWS, Reached(by.memory, by.bandwidth, by.flops, 0.0, 0.0))
    whole = ratios(ROWS, by)
    assert len(whole) == 54
    assert (min(plain), max(plain)) == pytest.approx((0.70, 1.22), abs=0.005)
    assert min(whole) >= 0.85 and max(whole) <= 1.35
    assert max(whole) / min(whole) < 0.9 * max(plain) / min(plain)
    own = [
        [ratio for row, ratio in zip(steps(ROWS, small=False), some, strict=True) if of_10m(row)]
        for some in (plain, whole)
    ]
    assert max(own[1]) / min(own[1]) < 0.9 * max(own[0]) / min(own[0])


def of_10m(row):
    return row["model"] == "10M"


def test_it_prints_each_row_and_refuses_a_file_without_rows(tmp_path, capsys):
    assert main([str(FILE)]) == 0
    out = capsys.readouterr().out
    assert out.count(" step model ") == 54
    assert "with launches: expected over measured 0.853 to 1.247" in out
    (tmp_path / "rows.jsonl").write_text('{"what": "machine"}\n{}\n')
    assert main([str(tmp_path / "rows.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
