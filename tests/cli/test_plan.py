"""bss plan: exact integers, against a loop over steps."""

import json

import pytest

from bss.cli import main
from tests.cli.called import alone, printed

ACCEPTANCE = [
    *("plan", "--tokens", "10M", "--seq-len", "128", "--batch", "0:8 2M:16 6M:32"),
    *("--lr", "4e-3", "--warmup", "200K", "--decay", "20%", "--buckets", "8,32", "--json"),
]


def naive_segments() -> list[dict]:
    """The plan of ACCEPTANCE, step by step."""
    position, segments = 0, []
    while True:
        batch = 8 if position < 2_000_000 else 16 if position < 6_000_000 else 32
        end = position + batch * 128
        if end > 10_000_000:
            return segments
        middle = (position + end) / 2
        lr = 4e-3 * min(1, middle / 200_000) * min(1, (10_000_000 - middle) / 2_000_000)
        if not segments or segments[-1]["batch"] != batch:
            bucket = 32 if batch == 32 else 8
            segments.append(
                {
                    "start_tokens": position,
                    "batch": batch,
                    "steps": 0,
                    "bucket": bucket,
                    "accumulation": batch // bucket,
                    "lr_start": lr,
                }
            )
        segments[-1] |= {"end_tokens": end, "lr_end": lr, "steps": segments[-1]["steps"] + 1}
        position = end


def test_exact_integers(capsys):
    assert main(ACCEPTANCE) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["devices"] == 8
    expected = naive_segments()
    assert len(plan["segments"]) == len(expected) == 3
    for segment, naive in zip(plan["segments"], expected, strict=True):
        assert segment.keys() == naive.keys()
        for name, value in naive.items():
            if name.startswith("lr"):
                assert segment[name] == pytest.approx(value, rel=1e-12)
            else:
                assert segment[name] == value
                assert type(segment[name]) is int
    assert plan["steps"] == sum(s["steps"] for s in expected)
    assert plan["tokens"] == expected[-1]["end_tokens"]
    assert plan["tokens"] + plan["remainder_tokens"] == 10_000_000
    assert plan["programs"] == 2


def test_table_and_export(capsys):
    assert main(ACCEPTANCE[:-1]) == 0
    out = capsys.readouterr().out
    assert "2 compiled programs" in out
    for trainer in ("megatron", "olmo-core", "levanter"):
        assert main([*ACCEPTANCE[:-1], "--export", trainer]) == 0
        assert capsys.readouterr().out.strip()


def test_a_second_moment_of_few_steps_is_told_and_exported(capsys):
    arguments = [
        *ACCEPTANCE[:-1],
        "--beta2-half-life",
        "7K",
        "--export",
        "megatron",
        "--approximate",
    ]
    assert main(arguments) == 0
    out, told = capsys.readouterr()
    assert told.startswith("warning: beta2_half_life 7,000 makes beta2 0.667 at batch 32")
    assert told.count("\n") == 1
    assert f"--adam-beta2 {2 ** (-8 * 128 / 7000)!r}" in out
    assert main(ACCEPTANCE) == 0
    assert not capsys.readouterr().err


def test_it_loads_no_jax():
    modules = alone(*ACCEPTANCE)
    assert not modules & {"jax", "pandas", "scipy", "matplotlib"}


def planned(capsys, *arguments: str) -> dict:
    assert main(["plan", "--lr", "1e-3", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_starts_in_steps_are_converted_to_tokens(capsys):
    batch = "0:8 20000steps:16 50000steps:32"
    plan = planned(capsys, "--tokens", "1B", "--seq-len", "1024", "--batch", batch)
    assert [s["start_tokens"] for s in plan["segments"]] == [0, 163_840_000, 655_360_000]
    assert [s["steps"] for s in plan["segments"]][:2] == [20_000, 30_000]


def test_a_start_in_steps_is_exact_after_a_batch_that_overshoots(capsys):
    batch = "0:64 100:8 5steps:32"  # one step of 64 takes 8,192 tokens, past 100
    plan = planned(capsys, "--tokens", "1M", "--seq-len", "128", "--batch", batch)
    assert [s["steps"] for s in plan["segments"]][:2] == [1, 4]
    refused = ["plan", "--tokens", "10M", "--seq-len", "128", "--lr", "1e-3", "--batch"]
    assert main([*refused, "0:8 1M:16 5steps:32"]) == 2
    assert "5120" in capsys.readouterr().err  # the tokens of those steps


def test_the_ramp_of_megatron_is_in_samples(capsys):
    plan = ["--tokens", "1B", "--seq-len", "1024", "--batch"]
    ramp = planned(capsys, *plan, "16 8 300000:512")
    n = (512 - 16) // 8
    # Megatron-LM: first + increment * int(consumed / (samples / n)) while consumed <= samples
    consumed, steps = 0, 0
    while consumed <= 300_000:
        consumed += 16 + 8 * int(consumed / (300_000 / n))
        steps += 1
    done = sum(s["steps"] for s in ramp["segments"][:-1])
    at_last = ramp["segments"][-1]["start_tokens"] // 1024
    assert done + -((at_last - 300_001) // 512) == steps
    assert ramp["segments"][0]["batch"] == 16 and ramp["devices"] == 8


@pytest.mark.parametrize(
    "bad",
    ["512-128:50%", "16-16:50%", "16 8 300000", "512 8 300000:16", "16 7 300000:512"],
)
def test_a_ramp_that_does_not_grow_or_end_is_refused(capsys, bad):
    arguments = ["--tokens", "1B", "--seq-len", "1024", "--batch", bad, "--lr", "1e-3"]
    assert main(["plan", *arguments]) == 2
    assert "batch" in capsys.readouterr().err


def test_the_batch_of_the_learning_rate_needs_a_rule(capsys):
    arguments = ["--tokens", "1B", "--seq-len", "1024", "--batch", "8", "--lr", "1e-3"]
    assert main(["plan", *arguments, "--lr-batch", "512"]) == 2
    assert "--lr-coupling" in capsys.readouterr().err


def test_a_stage_of_a_few_steps_is_warned_of(capsys):
    batch = "0:8 20000:16 50000:32"  # starts are tokens, and were meant as steps
    planned_ = ["--tokens", "1B", "--seq-len", "1024", "--batch", batch, "--lr", "1e-3"]
    assert main(["plan", *planned_]) == 0
    assert "batch 8 lasts 3 steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "ramp", "steps"),
    [
        # Steps that trainers logged for ramps of microbatches of 16, with the last partial step.
        (937_426_944, "128-512:50%", 2_549),
        (937_426_944, "16-256:50%", 7_224),
        (2_700_083_200, "16-256:50%", 20_805),
        (2_700_083_200, "16-256/16:50%", 20_805),
    ],
)
def test_linear_ramps_take_as_many_steps_as_trainers_log(capsys, tokens, ramp, steps):
    plan = planned(capsys, "--tokens", str(tokens), "--seq-len", "1024", "--batch", ramp)
    assert abs(plan["steps"] + bool(plan["remainder_tokens"]) - steps) <= 1


def test_the_learning_rate_may_be_that_of_the_last_batch(capsys):
    batch = "0:64 201326592:128 469762048:256 939524096:512"
    plan = ["--tokens", "2700083200", "--seq-len", "1024", "--batch", batch]
    first = planned(capsys, *plan, "--lr-coupling", "sqrt")
    last = planned(capsys, *plan, "--lr-coupling", "sqrt", "--lr-batch", "512")
    assert [s["steps"] for s in last["segments"]] == [3_072, 2_048, 1_792, 3_358]
    assert first["segments"][0]["lr_end"] == pytest.approx(1e-3)
    assert last["segments"][-1]["lr_end"] == pytest.approx(1e-3)
    assert last["segments"][0]["lr_end"] == pytest.approx(1e-3 * (64 / 512) ** 0.5)


def test_counts_and_numbers_have_suffixes_and_need_no_leading_zero(capsys):
    typed = ("--tokens", ".1B", "--seq-len", ".5K", "--batch", ".1k", "--lr", ".1")
    plain = ("--tokens", "100000000", "--seq-len", "500", "--batch", "100", "--lr", "0.1")
    more = ("--beta2", ".95", "--weight-decay", ".1", "--decay", ".01B")
    full = ("--beta2", "0.95", "--weight-decay", "0.1", "--decay", "10000000")
    assert printed(capsys, "plan", *typed, *more) == printed(capsys, "plan", *plain, *full)
