import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bss.errors import InputError
from bss.exports import export
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
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
    ("trainer", "start", "says"),
    [
        ("nemo", 0, "export: 'nemo' is unknown; choose one of megatron, "),
        ("levantar", 0, "did you mean 'levanter'?"),
        ("tests.exports.own:NONE", 0, "own:NONE is str; expected Export"),
        ("tests.exports.nowhere:TRAINER", 0, "nowhere:TRAINER cannot be imported"),
        ("levanter", 1024, "position 0"),
    ],
)
def test_bad_arguments_are_refused(trainer, start, says):
    with pytest.raises(InputError, match=re.escape(says)):
        export(resolve(BatchSchedule.constant(8), 10_000, 128, start=start), trainer)


def test_a_users_own_trainer_is_named_by_its_module():
    coupling = Coupling(lr="sqrt", reference_batch=8)
    lines = export(plan(coupling=coupling), "tests.exports.own:STEPS").splitlines()
    assert lines[0].startswith("# 0:8 2M:16 6M:32 over 9998336 tokens")
    assert lines[1:-1] == [f"steps: {plan().steps}"]
    assert lines[-1].startswith("# MyTrainer cannot change this at a batch change; lr as multiples")


WHOLE = Path(__file__).with_name("whole")
TRAINERS = (
    *("megatron", "levanter", "maxtext"),
    *("huggingface", "deepspeed", "olmo-core", "torchtitan"),
)


def whole_plan(name):
    """A plan whose first step is its only one of its batch, and one of a late exponential decay."""
    if name == "coupled":
        coupling = Coupling("sqrt", 4, 0.1, "per_token", beta1_half_life=4e3, beta2_half_life=4e4)
        rate = rates.wsd(1e-3, 100_000, 10_000, 20_000, "cosine", 0.1)
        schedule = BatchSchedule.parse("0:2 1:4 40K:8")
        return resolve(schedule, 100_000, 100, rate=rate, coupling=coupling)
    if name == "short":
        rate = rates.wsd(1e-3, 10_000, 1000, 2000)
        return resolve(BatchSchedule.parse("0:3 300:5"), 10_000, 100, rate=rate)
    rate = rates.wsd(1e-3, 98_000, 300, 20_000, "exponential", 0.25)
    return resolve(BatchSchedule.parse("0:2 10K:4 30K:6"), 100_000, 100, rate=rate)


@pytest.mark.parametrize("name", ["coupled", "short", "late"])
def test_every_trainer_is_told_what_was_reviewed(name):
    """Whole texts, read against each trainer's own rules when they were written."""
    made = "".join(f"## {trainer}\n{export(whole_plan(name), trainer)}" for trainer in TRAINERS)
    assert made == (WHOLE / f"{name}.txt").read_text()


@pytest.mark.parametrize("decay", [0, 100])
def test_megatron_is_given_a_length_that_is_longer_than_the_warm_up(decay):
    """It refuses others; of 100 samples the warm-up takes 98 less half a batch."""
    rate = rates.wsd(1.0, 10_000, 9_900, decay)
    flags = export(resolve(BatchSchedule.constant(40), 10_000, 100, rate=rate), "megatron")
    assert "--lr-warmup-samples 79\n--lr-warmup-init" in flags
    assert "--lr-decay-samples 80\n" in flags


def test_lengths_that_end_at_steps_need_no_word():
    """Of a batch of 4 sequences of 100: warm-up to 2000, decay from 8000 to the last step."""
    whole = resolve(BatchSchedule.constant(4), 10_000, 100, rate=rates.wsd(1.0, 10_000, 2000, 2000))
    assert "whole steps" not in export(whole, "levanter")
    assert "whole samples" not in export(whole, "megatron")
    assert "across a batch change" not in export(whole, "maxtext")
    for warmup, decay in ((2001, 2000), (2000, 2001)):
        rate = rates.wsd(1.0, 10_000, warmup, decay)
        part = resolve(BatchSchedule.constant(4), 10_000, 100, rate=rate)
        assert "whole steps" in export(part, "levanter")
        assert "whole samples" in export(part, "megatron")
    edges = rates.wsd(1.0, 10_000, 2000, 2000)
    at_them = resolve(BatchSchedule.parse("0:4 2000:10 8000:4"), 10_000, 100, rate=edges)
    assert "across a batch change" not in export(at_them, "levanter")
    within = resolve(BatchSchedule.parse("0:4 1600:8"), 10_000, 100, rate=edges)
    assert "across a batch change" in export(within, "levanter")
