"""The text of a set-up becomes the shards of its runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bss.data.shards import open_shards
from bss.errors import InputError
from bss.sweeps.setup import Setup, TextConfig, planned_run
from bss.sweeps.sweep import prepared_run, sweep
from bss.training.evaluation import check_runs
from bss.values import from_dict

BODY = "A note of its own, number {}, of a few words each.\n"


@pytest.fixture
def notes(tmp_path):
    lines = [json.dumps({"id": n, "body": BODY.format(n) * 20}) for n in range(60)]
    (tmp_path / "notes.jsonl").write_text("\n".join(lines))

    def setup(**text):
        given = {"corpus": f"files:{tmp_path}/*.jsonl", "root": str(tmp_path / "data"), **text}
        schedule = {"tokens": 2048, "batch": 2}
        return from_dict(Setup, {"model": "pico", "text": given, "schedule": schedule})

    return setup


def test_lines_of_another_field_are_trained_on(notes):
    run, execution = prepared_run(notes(text_feature="body", seq_len=32))
    assert run.data.content and run.model.vocab_size == 256
    assert execution.data.startswith(notes().text.root)
    assert TextConfig().text_feature == "text"


def test_a_field_that_is_not_there_is_refused(notes):
    with pytest.raises(InputError, match=r"notes.jsonl, line 1, has no text 'text' but id, body"):
        prepared_run(notes())


def test_another_vocabulary_than_the_tokenizers_is_refused_before_training(notes, tmp_path):
    setup = notes(text_feature="body", seq_len=32)
    told = r"model\.vocab_size is 300, the tokenizer has 256 tokens; write model\.vocab_size 256"
    with pytest.raises(InputError, match=told):
        prepared_run(replace(setup, model={"name": "pico", "vocab_size": 300}))
    axes = {"model.vocab_size": [256, 300], "evaluation.tokens": [32]}
    with pytest.raises(InputError, match=told):
        sweep(setup, axes, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_every_run_is_held_against_its_text_before_training(notes, tmp_path):
    setup = notes(text_feature="body", seq_len=32)
    for axes, told in (
        ({"schedule.tokens": [2048, 10_000_000]}, "one pass over the corpus has"),
        ({"evaluation.tokens": [32, 10_000_000]}, "evaluation.tokens: 10000000 are not between"),
        ({"evaluation.metrics": [["acc"]]}, "evaluation.metrics: 'acc' is unknown"),
        (
            {"evaluation": [{"tokens": 32, "sets": [{"name": "wiki", "content": "ab"}]}]},
            "content ab",
        ),
        (
            {"evaluation": [{"tokens": 32, "sets": [{"name": "wiki"}]}]},
            "evaluation.tokens: 32768 are",
        ),
    ):
        with pytest.raises(InputError, match=told):
            sweep(setup, axes, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    shards = open_shards(Path(prepared_run(setup)[1].data))
    run = planned_run(setup, 256)
    twice = replace(
        run,
        data=replace(run.data, repeat=True, content=shards.content_hash),
        schedule=replace(run.schedule, tokens=2 * len(shards.tokens("train"))),
        evaluation=replace(run.evaluation, tokens=64),
    )
    with pytest.warns(RuntimeWarning, match=r"data\.repeat: 2\.0. passes"):
        check_runs([twice], str(shards.directory))
