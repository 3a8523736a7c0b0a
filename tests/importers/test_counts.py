"""Steps under any name, and counts that contradict steps × batch × sequence length."""

import json

import pytest

from bss.importers.lines import number
from bss.tables import read_runs
from tests.cli.called import printed, refused

SEQ_LEN, BATCH = 64, 8


def table(tmp_path, suffix, rows):
    names = list(rows[0])
    lines = [",".join(names), *(",".join(map(str, row.values())) for row in rows)]
    if suffix == "jsonl":
        lines = [json.dumps(row) for row in rows]
    path = tmp_path / f"a.{suffix}"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def imported(capsys, path, *given):
    out = ["-o", path + ".out.csv", "--seq-len", str(SEQ_LEN)]
    [run] = printed(capsys, "import", "auto", path, *out, *given)["runs"]
    return run


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    "name",
    ["trainer/iter", "engine/iteration", "run.global_step", "opt/step", "num_updates", "Steps"],
)
@pytest.mark.parametrize("own", [True, False])
def test_a_column_named_like_a_step_is_the_step(tmp_path, capsys, suffix, name, own):
    """Before W&B's own step, which counts calls of log."""
    rows = [
        {**({"_step": 10 * i + 9} if own else {}), name: 100 * (i + 1), "val/loss": 4 - i / 10}
        for i in range(6)
    ]
    run = imported(capsys, table(tmp_path, suffix, rows), "--batch", str(BATCH))
    assert (run["steps"], run["tokens"]) == (600, 600 * BATCH * SEQ_LEN)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("timing/step", [3, 4, 9, 11, 30, 31]),
        ("micro_iter", [400, 800, 1200, 1600, 2000, 2400]),
        ("eval/step", [100, 200, 300, 400, 500, 600]),
    ],
)
def test_other_columns_are_not(tmp_path, capsys, name, values):
    rows = [{"_step": 10 * i, name: n, "val/loss": 4 - i / 10} for i, n in enumerate(values)]
    assert imported(capsys, table(tmp_path, "csv", rows), "--batch", str(BATCH))["steps"] == 50


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("seen_tok", 1),
        ("data/tokens_M", 1e6),
        ("perf/trained tokens (B)", 1e9),
        ("billion_tokens", 1e9),
        ("Mtok", 1e6),
        ("samples/done", SEQ_LEN),
    ],
)
@pytest.mark.parametrize("factor", [1, 4, 0.25])
def test_a_count_that_contradicts_the_tokens_is_named(tmp_path, capsys, name, unit, factor):
    rows = [
        {"step": i, name: i * BATCH * SEQ_LEN * factor / unit, "accum": 4, "loss": 4 - i / 1000}
        for i in range(100, 700, 100)
    ]
    for suffix in ("csv", "jsonl"):
        run = imported(capsys, table(tmp_path, suffix, rows), "--batch", str(BATCH))
        told = [line for line in run["warnings"] if line.startswith(f"{name} contradicts")]
        assert len(told) == (factor != 1)
        assert all("accum is 4, so steps may count micro-batches" in line for line in told)
        assert not [note for note in run["notes"] if "accum" in note]


def test_accumulation_is_named_where_nothing_shows_what_a_step_is(tmp_path, capsys):
    rows = [
        {"step": i, "tokens": i * BATCH * SEQ_LEN, "grad_accum": 2, "loss": 4 - i / 1000}
        for i in range(100, 700, 100)
    ]
    run = imported(capsys, table(tmp_path, "jsonl", rows))
    assert run["batch_from"] == "tokens per step"
    assert [line for line in run["warnings"] if line.startswith("grad_accum is 2 and not read")]
    once = [{**row, "grad_accum": 1} for row in rows]
    assert imported(capsys, table(tmp_path, "jsonl", once))["warnings"] == []


@pytest.mark.parametrize("name", ["samples_done", "train/tokens_seen"])
def test_a_count_of_logs_in_place_of_steps_is_told(tmp_path, capsys, name):
    """W&B's step counts calls of log from 0, so that only what both grow by has one factor."""
    each = BATCH * (SEQ_LEN if "tokens" in name else 1)
    rows = [{"_step": i, name: 50 * (i + 1) * each, "train/loss": 4 - i / 10} for i in range(6)]
    run = imported(capsys, table(tmp_path, "csv", rows), "--batch", str(BATCH))
    told = [line for line in run["warnings"] if line.startswith(f"{name} contradicts")]
    assert len(told) == 1 and "1/50 of them" in told[0]


@pytest.mark.parametrize("ratio", [1.0, 1.5])
def test_another_batch_that_is_no_multiple_is_told(tmp_path, capsys, ratio):
    rows = [
        {"step": i, "tokens_total": int(ratio * i * BATCH * SEQ_LEN), "loss": 4 - i / 1000}
        for i in range(100, 700, 100)
    ]
    run = imported(capsys, table(tmp_path, "csv", rows), "--batch", str(BATCH))
    assert len(run["warnings"]) == (ratio != 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_number_of_the_batch_is_no_batch_size(tmp_path, capsys, first):
    rows = [{"step": i, "batch": i - 1 + first, "loss": 4 - i / 100} for i in range(1, 7)]
    path = table(tmp_path, "csv", rows)
    assert imported(capsys, path, "--batch", str(BATCH))["batch"] == str(BATCH)
    told = refused(capsys, "import", "auto", path, "-o", path + ".out.csv", "--seq-len", "64")
    assert "does not give its batch" in told
    ramp = [{**row, "batch": 16 + row["step"]} for row in rows]
    assert imported(capsys, table(tmp_path, "csv", ramp))["batch"] == "17 18 19 20 …"


def test_a_batch_that_may_be_in_tokens_is_told(tmp_path, capsys):
    rows = [{"step": i, "global_batch_size": 2**23, "loss": 4 - i / 10} for i in range(1, 7)]
    assert (
        "read it with --columns batch_tokens=NAME"
        in imported(capsys, table(tmp_path, "csv", rows))["warnings"][0]
    )


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        (["1.000;6,1154", "2.000;5,25", "3.000;5,0"], (3000, 5.0)),
        (["1,000;6.1154", "2,000;5.25", "3,000;5.0"], (3000, 5.0)),
        (["10;6.115", "20;5.250", "30;5.125"], (30, 5.125)),
        (["10;6,115", "20;5,250", "30;5,125"], (30, 5.125)),
    ],
)
def test_marks_of_thousands_are_no_decimals(tmp_path, capsys, cells, last):
    path = tmp_path / "a.csv"
    path.write_text("step;loss\n" + "\n".join(cells) + "\n")
    run = imported(capsys, str(path), "--batch", "8")
    table = read_runs(str(path) + ".out.csv")
    assert (run["steps"], table["loss"].iloc[-1]) == last


def test_numbers_that_may_be_read_two_ways_are_refused(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("step;loss\n1,000;6.115\n2,000;5.250\n3,000;5.125\n")
    assert "marks of thousands or decimals" in refused(
        capsys, "import", "auto", str(path), "-o", str(tmp_path / "o.csv"), "--seq-len", "64"
    )
    assert number("12,345.5") == 12345.5
    with pytest.raises(ValueError, match="1,5"):
        number("1,5")
