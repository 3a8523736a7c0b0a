import re
from collections.abc import Callable
from typing import Any

import pytest

from bss.errors import InputError
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.export import export
from bss.schedules.plan import resolve

TOKENS = 9_998_336  # what the steps consume of 10M
RATE = rates.wsd(4e-3, TOKENS, 200_064, 2_000_000, "1-sqrt", 0.1)


def plan(text="0:8 2M:16 6M:32", rate: Callable[[Any], Any] | None = RATE, coupling=None):
    return resolve(BatchSchedule.parse(text), TOKENS, 128, rate=rate, coupling=coupling)


def megatron_batch(text, seq_len, samples):
    """What Megatron-LM makes of the schedule: thresholds floored to samples, last one reached."""
    pairs = [entry.split(":") for entry in text.split()]
    return [int(b) for tokens, b in pairs if samples >= int(tokens) // seq_len][-1]


def test_megatron_flags():
    flags = export(plan(), "megatron").splitlines()
    assert {
        "--seq-length 128",
        "--train-samples 78112",
        '--step-batch-size-schedule "0:8 2000896:16 6000640:32"',
        "--lr 0.004",
        "--min-lr 0.0004",
        "--lr-warmup-samples 1559",
        "--lr-warmup-init 1.0236724248240563e-05",
        "--lr-decay-style WSD",
        "--lr-wsd-decay-style minus_sqrt",
        "--lr-wsd-decay-samples 15625",
        "--lr-decay-samples 78096",
    } <= set(flags)
    assert all(line.startswith(("--", "# ")) for line in flags)


@pytest.mark.parametrize("text", ["0:8 2M:16 6M:32", "0:7 999999:5 1M:64 1000001:3", "0:8 129:9"])
def test_megatron_takes_the_steps_of_the_plan(text):
    wanted = plan(text)
    found = re.search(r'schedule "(.*)"', export(wanted, "megatron"))
    assert found
    samples = 0
    for step in range(min(wanted.steps, 4000)):
        batch = megatron_batch(found[1], 128, samples)
        assert (batch, samples * 128) == (wanted.at(step).batch, wanted.tokens_at(step))
        samples += batch


def test_levanter_counts_steps():
    lines = export(plan(), "levanter").splitlines()
    wanted = plan()
    starts = [int(n) for line in lines for n in re.findall(r"start: (\d+)", line)]
    assert starts == [0, 1954, 3907] == [s.start_step for s in wanted.segments]
    assert f"  num_train_steps: {wanted.steps}" in lines
    assert f"  warmup: {wanted.step_at(200_064)}" in lines
    assert f"  decay: {wanted.steps - wanted.step_at(TOKENS - 2_000_000)}" in lines
    assert "  min_lr_ratio: 0.1" in lines


@pytest.mark.parametrize(
    ("trainer", "made", "says"),
    [
        ("megatron", plan(rate=rates.wsd(1.0, TOKENS, 1, 2)), "rounded down to whole samples"),
        ("megatron", plan(rate=rates.wsd(1.0, 128, 0, 128, "exponential", 0.1)), "not floor^x"),
        ("megatron", plan(rate=rates.cosine(1.0, TOKENS)), "changes in the warm-up or the decay"),
        ("megatron", plan(coupling=Coupling(lr="sqrt", reference_batch=8)), "1, 1.41421, 2"),
        ("megatron", plan(coupling=Coupling(beta2_half_life=1024)), "beta2 would be 0.5, 0.25"),
        ("megatron", plan(rate=rates.constant(1.0)), "--lr-decay-style constant"),
        ("torchtitan", plan(coupling=Coupling(beta2_half_life=1024)), "beta2 would be 0.5, 0.25"),
        ("olmo-core", plan("0:8 2M:12"), "refuses the change from 1024 to 1536"),
        ("levanter", plan(), "no 1-sqrt decay"),
        ("levanter", plan(rate=rates.cosine(1.0, TOKENS)), "across a batch change"),
        ("levanter", plan(rate=rates.constant(1.0)), "lr_schedule: constant"),
        ("levanter", plan(rate=rates.wsd(1.0, TOKENS, 1024, 0)), "warmup: 0.0003"),
        ("levanter", plan(rate=None), "no learning rate"),
    ],
)
def test_what_a_trainer_cannot_do_is_said(trainer, made, says):
    assert says in export(made, trainer)


@pytest.mark.parametrize(
    ("trainer", "start", "says"), [("nemo", 0, "unknown"), ("levanter", 1024, "position 0")]
)
def test_bad_arguments_are_refused(trainer, start, says):
    with pytest.raises(InputError, match=says):
        export(resolve(BatchSchedule.constant(8), 10_000, 128, start=start), trainer)
