"""What became of a run: each status tells its own numbers, and reads back."""

import pytest

from bss.training.run_directory import RunStatus, Speed, throughput
from bss.values import from_dict, to_dict

FINISHED = RunStatus(
    "finished",
    8192,
    128,
    {"loss": 2.0, "eval_loss": 2.5},
    3.0,
    16,
    2,
    0,
    (Speed(2, 64, 8.0, None),),
)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (RunStatus(), {}),
        (RunStatus("running", 64), {"tokens": 64}),
        (RunStatus("interrupted", 64), {"tokens": 64}),
        (RunStatus("failed", 64, message="no room"), {"tokens": 64, "message": "no room"}),
        (RunStatus("skipped", message="no parent"), {"message": "no parent"}),
        (RunStatus("diverged", 64, last_checkpoint=32), {"tokens": 64, "last_checkpoint": 32}),
        (
            FINISHED,
            {"tokens": 8192, "step": 128, "seconds": 3.0}
            | {"losses": {"loss": 2.0, "eval_loss": 2.5}}
            | {"remainder_tokens": 16, "programs": 2, "recompilations": 0}
            | {"throughput": ({"batch": 2, "tokens": 64, "tokens_per_second": 8.0, "mfu": None},)},
        ),
    ],
)
def test_a_status_tells_what_it_has_and_reads_back(status, told):
    entry = to_dict(status)
    assert from_dict(RunStatus, dict(entry), strict=False) == status
    assert {key: entry[key] for key in entry if key != "schema"} == {"status": status.status} | told
    assert status.finished == (status is FINISHED)


def test_throughput_by_batch():
    rows = [
        {"batch": 2, "tokens": 100, "seconds": 1.0},
        {"batch": 2, "tokens": 300, "seconds": 2.0},
        {"batch": 4, "tokens": 900, "seconds": 4.0},
        {"batch": 2, "tokens": 1000, "seconds": 4.5},
    ]
    assert throughput(rows, 1000.0) == (Speed(2, 400, 160.0, 0.16), Speed(4, 600, 300.0, 0.3))
    assert throughput(rows[:1], 1000.0, start=50)[0].tokens == 50
    assert throughput([], 1000.0) == ()


def test_throughput_is_by_batch_from_where_the_run_began():
    rows = [
        {"batch": 2, "tokens": 300, "seconds": 2.0},
        {"batch": 8, "tokens": 700, "seconds": 3.0},
        {"batch": 2, "tokens": 900, "seconds": 5.0},
        {"batch": 4, "tokens": 950, "seconds": 5.0},
    ]
    two, eight = throughput(rows, 200.0, start=100)
    assert (two.batch, two.tokens, two.tokens_per_second, two.mfu) == (2, 400, 100.0, 0.5)
    assert (eight.batch, eight.tokens, eight.tokens_per_second, eight.mfu) == (8, 400, 400.0, 2.0)
    assert throughput(rows[:1], None)[0].mfu is None
