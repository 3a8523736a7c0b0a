"""A plan in Python: made from text, iterated, shown, plotted and exported."""

import json

import pytest
from matplotlib import pyplot

import bss
from bss.cli import main
from bss.errors import InputError

LR = bss.LRSchedule("wsd", peak=1e-3, warmup="10K", decay="20%")
GIVEN = {"tokens": "1M", "seq_len": 64}


@pytest.fixture(scope="module")
def made():
    return bss.plan("0:8 50%:16", **GIVEN, lr=LR)


def test_its_steps_have_batch_lr_and_tokens(made):
    steps = list(made)
    assert len(steps) == len(made) == made.steps
    assert (steps[0].batch, steps[-1].batch) == (8, 16)
    assert [step.tokens for step in steps[:3]] == [0, 512, 1024]
    peak = [step.lr for step in steps if 10_000 < step.tokens < 790_000]
    assert set(peak) == {1e-3} and steps[0].lr < 1e-3 and steps[-1].lr < 1e-4


def test_every_form_of_the_arguments_is_one_plan(made):
    schedule = bss.BatchSchedule((0, 500_000), (8, 16))
    wsd = bss.wsd(1e-3, 1_000_000, 10_000, 200_000)
    assert bss.plan(schedule, tokens=10**6, seq_len="64", lr=wsd).segments == made.segments
    assert bss.plan(8, **GIVEN, lr="1e-3").at(3).lr == 1e-3
    assert bss.plan(8, **GIVEN).at(3).lr == 1.0


def test_it_is_shown_as_a_frame_a_figure_and_settings(made):
    frame = made.to_frame()
    assert frame["batch"].tolist() == [8, 16] and frame["end_tokens"].iloc[-1] == made.tokens
    assert repr(made).startswith("0:8 500K:16: 1,465 steps") and "<table>" in made._repr_html_()
    ax = made.plot()
    assert ax.get_xlabel() == "tokens consumed" and ax.get_legend() is not None
    pyplot.close(ax.figure)
    assert made.export("csv").count("\n") == made.steps + 1
    assert made.export("torchtitan") == bss.export(made, "torchtitan")


def test_the_command_prints_this_plan(made, capsys):
    command = ["plan", "--tokens", "1M", "--seq-len", "64", "--batch", "0:8 50%:16", "--lr", "1e-3"]
    assert main([*command, "--warmup", "10K", "--decay", "20%", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for own, printed in zip(made.to_dict()["segments"], told["segments"], strict=True):
        assert {name: printed[name] for name in own} == own
    assert (told["steps"], told["tokens"]) == (made.steps, made.tokens)


@pytest.mark.parametrize(
    ("batch", "change", "told"),
    [
        (None, {}, "batch: None given"),
        (True, {}, "batch: True given"),
        ("many", {}, "batch"),
        (8, {"tokens": "x"}, "tokens: 'x' is not a count"),
        (8, {"seq_len": 0}, "seq_len: 0"),
        (8, {"lr": "fast"}, "lr: 'fast' is not a number"),
        (8, {"lr": -1}, "peak: -1"),
        (8, {"lr": bss.LRSchedule("cosine", peak=1, decay="2%")}, "decay: the LR schedule cosine"),
        (8, {"lr": bss.LRSchedule("wsd", peak=1, decay="200%")}, "more than the whole"),
    ],
)
def test_bad_arguments_are_one_line(batch, change, told):
    with pytest.raises(InputError, match=told) as refusal:
        bss.plan(batch, **GIVEN | change)
    assert "\n" not in str(refusal.value)
