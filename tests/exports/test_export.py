import csv
import io
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
    flags = export(plan(coupling=Coupling(weight_decay=0.1)), "megatron").splitlines()
    assert {
        "--weight-decay 0.1",
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


def rampup_batches(text, steps):
    """The batch of every step by the rule of Megatron-LM before its schedule string."""
    final = int(re.findall(r"^# --global-batch-size (\d+)$", text, re.MULTILINE)[0])
    start, increment, samples = map(
        int, re.findall(r"^# --rampup-batch-size (\d+) (\d+) (\d+)$", text, re.MULTILINE)[0]
    )
    share = samples / ((final - start) // increment)
    batches = []
    for _ in range(steps):
        consumed = sum(batches)
        ramps = consumed <= samples
        batches.append(start + int(consumed / share) * increment if ramps else final)
    return batches


@pytest.mark.parametrize("text", ["0:8 100K:16", "0:8 100K:16 200K:24", "0:7 10000:10 20000:13"])
def test_an_older_megatron_is_given_the_ramp_up_that_follows_the_plan(text):
    made = resolve(BatchSchedule.parse(text), 400_000, 128)
    exported = export(made, "megatron")
    assert "needs megatron-core 0.18 or later. Earlier versions take instead:" in exported
    assert rampup_batches(exported, made.steps) == [made.at(n).batch for n in range(made.steps)]


@pytest.mark.parametrize("text", ["0:8 2M:16 6M:32", "0:16 2M:8", "0:8 2M:16 8M:24"])
def test_an_older_megatron_that_cannot_follow_is_told(text):
    exported = export(plan(text), "megatron")
    assert "Earlier versions cannot follow this plan:" in exported
    assert "# --rampup-batch-size" not in exported and "# --global-batch-size" not in exported


def test_an_older_megatron_has_one_batch_size_without_a_ramp_up():
    exported = export(plan("8"), "megatron")
    assert "take instead:\n# --global-batch-size 8\n" in exported
    assert "--rampup-batch-size" not in exported


def test_levanter_counts_steps():
    wanted = plan(rate=rates.wsd(4e-3, TOKENS, 200_064, 2_000_000, "cosine", 0.1))
    lines = export(wanted, "levanter", approximate=True).splitlines()
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
        ("megatron", plan(rate=rates.cosine(1.0, TOKENS)), "changes in the warm-up or the decay"),
        ("megatron", plan(rate=rates.constant(1.0)), "--lr-decay-style constant"),
        ("levanter", plan(rate=rates.constant(1.0)), "lr_schedule: constant"),
        ("levanter", plan(rate=rates.wsd(1.0, TOKENS, 1024, 0)), "warmup: 0.0003"),
        ("levanter", plan(rate=None), "no learning rate"),
    ],
)
def test_what_is_rounded_is_said(trainer, made, says):
    assert says in export(made, trainer)


EXPONENTIAL = plan(rate=rates.wsd(1.0, 128, 0, 128, "exponential", 0.1))


@pytest.mark.parametrize(
    ("trainer", "made", "says"),
    [
        ("megatron", EXPONENTIAL, "not floor^x"),
        (
            "megatron",
            plan(coupling=Coupling(lr="sqrt", reference_batch=8)),
            "with the peak LR 0.00565685, and at step",
        ),
        (
            "megatron",
            plan(coupling=Coupling(beta2_half_life=1024)),
            "change beta2 with the batch: it stays 0.5, not 0.5, 0.25",
        ),
        ("torchtitan", plan(coupling=Coupling(beta2_half_life=1024)), "it stays 0.5"),
        ("olmo-core", plan("0:8 2M:12"), "integer factors, not from 1024 to 1536"),
        ("levanter", plan(), "no 1-sqrt decay: it becomes linear"),
        ("levanter", plan(rate=rates.cosine(1.0, TOKENS)), "across a batch change"),
        ("maxtext", plan("0:8 2M:16 3M:32", None), "after equal samples, not as 0:8 2M:16 3M:32"),
        ("maxtext", plan("0:16 2M:8", None), "after equal samples, not as 0:16 2M:8"),
    ],
)
def test_what_a_trainer_cannot_do_is_refused_unless_the_nearest_is_wanted(trainer, made, says):
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        export(made, trainer)
    assert str(refused.value).endswith("pass --approximate to export the nearest")
    assert says in export(made, trainer, approximate=True).replace(".\n", "\n")


def followed(text):
    """The batch schedule in an export's first line, and the steps it says."""
    schedule, steps = re.findall(r"^# (.*) over .* tokens: (\d+) steps", text)[0]
    return resolve(BatchSchedule.parse(schedule), TOKENS, 128), int(steps)


@pytest.mark.parametrize(
    ("trainer", "schedule", "near"),
    [
        ("maxtext", "0:8 2M:16 3M:32", "0:8 1500160:20 3000320:32"),
        ("maxtext", "0:16 5M:8", "11"),
        ("maxtext", "0:8 3M:16 5M:24", "0:8 2500608:16 5001216:24"),
        ("olmo-core", "0:8 2M:12", "0:8 2000896:16"),
        ("olmo-core", "0:12 2M:8", "0:12 2000640:6"),
        ("huggingface", "0:3 1M:8", "0:3 1001472:8"),
        ("deepspeed", "0:7 1M:8 1001K:9", "0:7 1003520:8 1004544:9"),
    ],
)
def test_the_nearest_is_exported_and_can_be_followed(trainer, schedule, near):
    made = plan(schedule, None)
    with pytest.raises(InputError) as refused:
        export(made, trainer)
    said = re.findall('--batch "(.*?)"', str(refused.value))[0]
    text = export(made, trainer, approximate=True)
    got, steps = followed(text)
    assert steps == got.steps and got.tokens > TOKENS - 128 * 32
    assert said == str(got.schedule)
    assert [s.batch for s in got.segments] == [s.batch for s in plan(near, None).segments]
    starts = zip(got.segments, plan(near, None).segments, strict=True)
    assert all(abs(a.start_tokens - b.start_tokens) <= 128 * 32 for a, b in starts)
    assert not re.search("nearest", export(got, trainer))  # which does all of it


@pytest.mark.parametrize("trainer", ["megatron", "levanter", "maxtext", "torchtitan"])
def test_only_what_a_plan_sets_is_written(trainer):
    of_adam = re.compile(r"beta|adam_b|weight.decay")
    assert not of_adam.search(export(plan("8", None), trainer))
    beta2 = [line for line in adam_lines(trainer, beta2=0.95) if of_adam.search(line)]
    assert len(beta2) == 1 and "0.95" in beta2[0] and "decay" not in beta2[0]
    (decay,) = [
        line for line in adam_lines(trainer, weight_decay=0.0) if re.search("weight.decay", line)
    ]
    assert "0.0" in decay


def adam_lines(trainer, **settings):
    return export(plan("8", None, Coupling(**settings)), trainer).splitlines()


def test_a_table_has_every_step_and_what_the_plan_sets():
    made = plan(coupling=Coupling("sqrt", 8, 0.1, "per_token", beta2_half_life=1e5))
    rows = list(csv.DictReader(io.StringIO(export(made, "csv"))))
    assert [*rows[0]] == ["step", "tokens", "batch", "rate", "beta2", "weight_decay"]
    assert len(rows) == made.steps
    for step in (0, 1, 1953, 1954, 3906, 3907, made.steps - 1):
        at, row = made.at(step), rows[step]
        assert (row["step"], row["tokens"], row["batch"]) == (
            str(step), str(at.tokens), str(at.batch)
        )  # fmt: skip
        values = [float(row[name]) for name in ("rate", "beta2", "weight_decay")]
        wanted = at.settings
        assert values == pytest.approx([wanted.lr, wanted.beta2, wanted.weight_decay], rel=1e-12)
    assert export(plan("0:8 2M:16", None), "csv").startswith("step,tokens,batch\n0,0,8\n1,1024,8")


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
    own = "tests.exports.own:STEPS"
    with pytest.raises(InputError, match="MyTrainer cannot change the peak LR"):
        export(plan(coupling=coupling), own)
    lines = export(plan(coupling=coupling), own, approximate=True).splitlines()
    assert lines[0].startswith("# 0:8 2M:16 6M:32 over 9998336 tokens")
    assert lines[2:] == [f"steps: {plan().steps}"]
    assert lines[1].startswith("# MyTrainer cannot change the peak LR with the batch: it stays")


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
    plan = whole_plan(name)
    made = "".join(f"## {t}\n{export(plan, t, approximate=True)}" for t in TRAINERS)
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
    with pytest.raises(InputError, match="across a batch change"):
        export(within, "levanter")
