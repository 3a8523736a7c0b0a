"""Exports of lengths in steps, of changing lengths of sequences, and of a horizon."""

import csv
import io

import pytest

import bss
from bss.errors import InputError
from bss.exports import EXPORTS

LENGTHS = bss.plan(
    "0:4x64 1K:4x128 4K:8x128",
    "20K",
    lr=bss.LRSchedule("wsd", peak=1.0, warmup="10%", decay="5steps"),
)


def test_megatron_flags_of_a_config_in_iterations():
    """Train 100 iterations, ramp 8 8 160 to 16, warm-up 10, decay 20: 1440, 80 and 320 samples."""
    lr = bss.LRSchedule("wsd", peak=1e-3, warmup="10steps", decay="20steps")
    plan = bss.plan("8 8 160:16", "100steps", 4096, lr=lr)
    by_hand = bss.LRSchedule("wsd", peak=1e-3, warmup=80 * 4096, decay=320 * 4096)
    flags = plan.export("megatron")
    assert flags == bss.plan("8 8 160:16", 1440 * 4096, 4096, lr=by_hand).export("megatron")
    assert "--train-samples 1440\n" in flags
    assert "--lr-wsd-decay-samples 320\n" in flags
    assert "--lr-warmup-samples 76\n" in flags  # half a batch less, as the LR is of a step's start
    assert "rounded" not in flags


@pytest.mark.parametrize("trainer", [name for name in EXPORTS if name not in ("csv", "python")])
@pytest.mark.parametrize("approximate", [False, True])
def test_trainers_have_one_length_of_sequences(trainer, approximate):
    with pytest.raises(InputError, match="one length of sequences per run") as error:
        LENGTHS.export(trainer, approximate=approximate)
    assert "\n" not in str(error.value)
    assert "at step 4 (1024 tokens) with sequences of 128 tokens" in str(error.value)


def test_rows_and_python_follow_lengths():
    rows = list(csv.DictReader(io.StringIO(LENGTHS.export("csv"))))
    scope: dict = {}
    exec(LENGTHS.export("python"), scope)
    assert len(rows) == LENGTHS.steps == scope["STEPS"]
    for step in LENGTHS:
        row = rows[step.step]
        assert int(row["tokens"]) == step.tokens
        assert int(row["batch"]) == step.batch == scope["batch"](step.step)
        assert scope["step_at"](step.tokens) == step.step
        size = LENGTHS.tokens_at(step.step + 1) - step.tokens
        assert int(row["seq_len"]) * step.batch == size == scope["seq_len"](step.step) * step.batch
        assert (
            scope["rate"](step.step) == pytest.approx(step.lr) == pytest.approx(float(row["rate"]))
        )


def test_a_horizon_is_followed_or_refused():
    lr = bss.LRSchedule("cosine", peak=1e-3, horizon="1000steps")
    plan = bss.plan(8, "100steps", 64, lr=lr)
    assert "--lr-decay-samples 7996\n" in plan.export("megatron")
    assert "--train-samples 800\n" in plan.export("megatron")
    assert "1000 * 8" not in plan.export("torch")
    scope: dict = {}
    exec(plan.export("python"), scope)
    assert scope["rate"](99) == pytest.approx(plan.at(99).lr, rel=1e-12)
    for trainer in ("levanter", "maxtext"):
        with pytest.raises(InputError, match="ends the decay with the run"):
            plan.export(trainer)
    far = bss.LRSchedule("wsd", peak=1e-3, decay="100steps", horizon="1000steps")
    assert "lr_schedule: constant" in bss.plan(8, "100steps", 64, lr=far).export("levanter")
