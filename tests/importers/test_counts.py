"""Steps under any name, and counts that contradict steps × batch × sequence length."""

import json

import pytest

from tests.cli.called import printed

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
    "name", ["trainer/iter", "engine/iteration", "run.global_step", "opt/step"]
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
