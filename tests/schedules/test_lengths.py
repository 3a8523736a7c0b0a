"""Schedules as configs write them: steps, samples, percentages, and lengths of sequences."""

from dataclasses import replace

import numpy as np
import pytest

import bss
from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig, without_units
from bss.schedules.lengths import Budget
from bss.schedules.notation import split_unit

RAMP = "0:512 50000steps:1024 115000steps:2048"
LLAMA_3 = "0:1024x4096 252M:1024x8192 2.87T:2048x8192"


def test_the_lengths_of_a_config_in_steps():
    run = Budget.read(RAMP, "255000steps", 2048)
    assert run.tokens == (50_000 * 512 + 65_000 * 1024 + 140_000 * 2048) * 2048 == 775_946_240_000
    assert run.from_start("2000steps", "warmup") == 2000 * 512 * 2048
    assert run.to_end("20000steps", "decay") == 20_000 * 2048 * 2048
    assert run.to_end("200000steps", "decay") == (60_000 * 1024 + 140_000 * 2048) * 2048


@pytest.mark.parametrize(
    "text", ["2000steps", "2000 steps", "2K iterations", "2,000 iters", "2e3Step", "2k its"]
)
def test_the_spellings_of_steps(text):
    run = Budget.read(RAMP, "255000steps", 2048)
    assert run.from_start(text, "warmup") == 2_097_152_000


@pytest.mark.parametrize(
    "text",
    [
        "0:1024x4096 252M:1024x8192",
        "0 : 1,024 × 4,096, 252M : 1,024 × 8,192",
        "0:1024 x 4096; 252M tokens:1024*8192",
        "0:1024×4096   0.252B:1024×8192",
    ],
)
def test_the_spellings_of_a_schedule(text):
    assert str(BatchSchedule.parse(text)) == "0:1024x4096 252M:1024x8192"


def naive_tokens(schedule, seq_len, steps):
    """The tokens after a number of steps, one step at a time."""
    position = 0
    for _ in range(steps):
        position += schedule(position) * seq_len
    return position


@pytest.mark.parametrize("seed", range(20))
def test_steps_and_samples_are_those_of_a_loop(seed):
    draw = np.random.default_rng(seed)
    starts = (0, *sorted({int(x) for x in draw.integers(1, 20_000, 3)}))
    schedule = BatchSchedule(starts, tuple(int(b) for b in draw.integers(1, 12, len(starts))))
    steps = int(draw.integers(1, 400))
    tokens = naive_tokens(schedule, 7, steps)
    run = Budget.read(schedule, f"{steps}steps", 7)
    assert run.tokens == tokens
    assert bss.plan(schedule, f"{steps} steps", 7).steps == steps
    last = int(draw.integers(0, steps))
    assert run.to_end(f"{last}steps", "decay") == tokens - naive_tokens(schedule, 7, steps - last)
    assert Budget.read(schedule, f"{tokens // 7}samples", 7).tokens == tokens
    assert run.to_end(f"{tokens // 7}samples", "decay") == tokens


@pytest.mark.parametrize("batch", ["0:8 50%:64", "64-8:50%", "0:64 30%:8", "8-64:50%"])
@pytest.mark.parametrize("count", ["1000steps", "4321samples"])
def test_percentages_of_a_budget_in_steps(batch, count):
    if batch == "64-8:50%":
        with pytest.raises(InputError, match="does not grow"):
            bss.plan(batch, count, 64)
        return
    plan = bss.plan(batch, count, 64)
    number, unit = split_unit(count)
    trained = plan.steps if unit == "steps" else plan.budget // 64
    assert trained == int(number)
    share = float(batch.split(":")[-1 if "-" in batch else 1].split("%")[0].split()[-1]) / 100
    assert plan.schedule.starts[-1] <= share * plan.budget * 1.01


def test_a_ramp_linear_in_steps_has_equal_steps_at_each_batch():
    plan = bss.plan("768-4608:20000steps", "50000steps", 2048)
    assert [s.batch for s in plan.segments] == [*range(768, 4608 + 1, 192)]
    assert [s.steps for s in plan.segments] == [500, *[1000] * 19, 30_500]
    assert plan.tokens_at(20_000) == 20_000 * (768 + 4608) // 2 * 2048  # the mean of a line
    in_samples = bss.plan("16-32/16:600samples", 10**6, 100)
    assert in_samples.schedule == BatchSchedule((0, 30_000), (16, 32))
    assert bss.plan("8-16:5steps", "10steps", 64).steps == 10


def test_lengths_of_sequences_change_at_whole_sequences():
    plan = bss.plan(LLAMA_3, "15.6T")
    assert [(s.batch, s.seq_len) for s in plan.segments] == [
        (1024, 4096),
        (1024, 8192),
        (2048, 8192),
    ]
    assert plan.segments[0].steps == 61 == -(-252_000_000 // (1024 * 4096))
    assert plan.segments[2].start_tokens == plan.tokens_at(61 + plan.segments[1].steps)
    for segment in plan.segments:
        assert segment.start_tokens % segment.seq_len == 0
        assert segment.end_tokens - segment.start_tokens == segment.steps * segment.size
    assert plan.step_at(plan.segments[1].start_tokens) == 61
    assert plan.at(61).tokens == 61 * 1024 * 4096
    assert not plan.warnings
    assert str(BatchSchedule.parse(LLAMA_3)) == LLAMA_3
    assert plan.to_frame()["seq_len"].tolist() == [4096, 8192, 8192]
    lr = bss.plan(LLAMA_3, "15.6T", lr=bss.LRSchedule("cosine", peak=1.0)).lr_schedule()
    of_plan = bss.plan(LLAMA_3, "15.6T", lr=bss.LRSchedule("cosine", peak=1.0))
    for step in (0, 60, 61, 342_162, 1_100_000):
        assert float(lr(step)) == pytest.approx(of_plan.at(step).lr, rel=1e-12)


def test_a_stage_waits_for_a_whole_sequence():
    plan = bss.plan("0:3x64 1M:8x100", "2M")
    begin = plan.segments[1].start_tokens
    assert begin % 100 == 0 and begin % (3 * 64) == 0 and begin >= 1_000_000
    assert not any(at % 100 == 0 for at in range(-(-1_000_000 // 192) * 192, begin, 192))
    assert "begins at 1,003,200 tokens" in " ".join(plan.warnings)


def test_one_length_in_the_text_is_that_of_the_run():
    assert bss.plan("0:8x128 1M:16x128", "3M") == bss.plan("0:8 1M:16", "3M", 128)
    assert bss.plan("0:8x64 1M:16", "3M", 128).segments[1].seq_len == 128


@pytest.mark.parametrize(
    ("batch", "tokens", "seq_len", "message"),
    [
        ("0:8x64 1M:16x128", "3M", 256, "is not a length in"),
        ("0:8x64 1M:16", "3M", None, "1M:16 has no length"),
        ("0:8", "3M", None, "seq_len: missing"),
        ("0:8 100steps:16", "3M", None, "--seq-len"),
        ("0:2x64 1M:2x128 2M:2x256", "3M", None, "never begins at a whole sequence"),
        ("0:8 3M:16 100steps:32", "9M", 64, "increasing order"),
        ("100steps:8 1M:16", "9M", 64, "the first start must be 0"),
        ("0:8 10%:16", "10%", 64, "share of nothing"),
        ("0:8x", "3M", None, "write it like"),
        ("0:8x0 1M:8x64", "3M", 64, "seq_len"),
    ],
)
def test_contradictions_are_one_line(batch, tokens, seq_len, message):
    with pytest.raises(InputError, match=message) as error:
        bss.plan(batch, tokens, seq_len)
    assert "\n" not in str(error.value)


def test_a_coupling_counts_sequences_of_one_length():
    with pytest.raises(InputError, match="whose length changes"):
        bss.plan(LLAMA_3, "15T", lr=1e-3, coupling=bss.Coupling("sqrt", reference_batch=8))


def test_an_lr_schedule_beyond_the_end():
    lr = bss.LRSchedule("cosine", peak=1e-3, horizon="1949218748samples")
    plan = bss.plan("384 384 97656250:1152", "19531250samples", 4096, lr=lr)
    assert plan.steps == 50_862 == 19_531_250 // 384
    total = 1_949_218_748 * 4096
    middle = (plan.tokens + plan.tokens_at(plan.steps - 1)) / 2
    assert plan.at(plan.steps - 1).lr == pytest.approx(
        1e-3 * (1 + np.cos(np.pi * middle / total)) / 2, rel=1e-12
    )
    with pytest.raises(InputError, match="before the end of the run"):
        bss.plan(384, "19531250samples", 4096, lr=replace(lr, horizon="1000steps"))
    with pytest.raises(InputError, match="horizon: the LR schedule constant has none"):
        bss.plan(384, "1B", 4096, lr=bss.LRSchedule("constant", peak=1.0, horizon="2B"))
    shares = bss.LRSchedule("wsd", peak=1.0, warmup="10%", decay="20%", horizon="2000steps")
    over = bss.plan(8, "1000steps", 64, lr=shares).rate
    assert (over.total, over.warmup, over.decay) == (1_024_000, 102_400, 204_800)


def test_lengths_without_a_schedule_are_refused():
    with pytest.raises(InputError, match="depends on the batch sizes"):
        bss.LRSchedule("wsd", peak=1.0, warmup="100steps").over("1B")


def test_a_run_has_one_length_and_takes_steps():
    with pytest.raises(InputError, match="changes the length of sequences"):
        ScheduleConfig(batch=BatchSchedule.parse("0:8x64 1M:8x128"))
    entry = {
        "tokens": "100steps",
        "batch": "0:8 50steps:16",
        "warmup": "10steps",
        "decay": "20 its",
    }
    assert without_units(entry, 64) == {
        "tokens": (50 * 8 + 50 * 16) * 64,
        "batch": "0:8 25.6K:16",
        "warmup": 10 * 8 * 64,
        "decay": 20 * 16 * 64,
    }
    plain = {"tokens": "1M", "batch": "0:8 50%:16", "warmup": "5%"}
    assert without_units(plain, 64) is plain
