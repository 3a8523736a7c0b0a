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
    "status",
    [
        RunStatus(),
        RunStatus("failed", 64, message="no room"),
        RunStatus("diverged", 64, last_checkpoint=32),
        FINISHED,
    ],
)
def test_a_status_reads_back(status):
    assert from_dict(RunStatus, to_dict(status)) == status
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
