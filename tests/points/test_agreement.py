"""Curves that should be equal: planted pairs, equal, scaled, and different from a step on."""

import json

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.errors import InputError
from bss.points.agreement import compare_curves

KINDS = ("equal", "scaled", "different")


def pair(kind, seed, count=300, noise=0.003):
    """Two curves of one data order, the factor, and the step from which they differ."""
    draw = np.random.default_rng(seed)
    step = 10 * np.arange(1, count + 1)
    loss = (1.8 + 3 * (step / 50) ** -0.5) * (1 + draw.normal(0, 0.03, count))
    factor = draw.choice([2.0, 4.0, 8.0, 0.5, 1.1]) if kind == "scaled" else 1.0
    first = int(draw.integers(count // 5, 4 * count // 5))
    after = np.maximum(np.arange(count) - first, 0)
    apart = (after > 0) * 0.02 + 0.15 * after / count if kind == "different" else 0.0
    curves = [
        pd.DataFrame({"step": step, "loss": losses * (1 + draw.normal(0, noise, count))})
        for losses in (factor * (loss + apart), loss)
    ]
    return *curves, factor, int(step[first])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0, 0.003, 0.01])
def test_planted_pairs_are_told_apart(kind, noise):
    found = [
        (compare_curves(*pair(kind, i, noise=noise)[:2]), *pair(kind, i)[2:]) for i in range(8)
    ]
    assert [one.kind for one, _, _ in found] == [kind] * 8
    if kind == "scaled":
        assert all(one.factor == pytest.approx(factor, rel=0.01) for one, factor, _ in found)
    if kind == "different":
        late = [abs(one.step - step) / 3000 for one, _, step in found]
        assert np.median(late) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 20, 60, 400])
def test_equal_curves_are_hardly_ever_accused(count):
    wrong = sum(
        compare_curves(*pair("equal", seed, count, noise)[:2]).kind != "equal"
        for seed in range(250)
        for noise in (0.001, 0.03)
    )
    assert wrong <= 5  # of 500: 1 in 200 on average


def test_curves_that_drift_apart_by_rounding_are_equal():
    first, second, *_ = pair("equal", 0, noise=1e-6)
    drift = np.cumsum(np.random.default_rng(1).normal(0, 2e-5, len(first)))
    assert compare_curves(first.assign(loss=first["loss"] + drift), second).kind == "equal"


def test_a_spike_is_no_change_and_a_loss_that_is_not_finite_is_one():
    first, second, *_ = pair("equal", 3)
    spiked = first.copy()
    spiked.loc[150, "loss"] += 2
    assert compare_curves(spiked, second).kind == "equal"
    spiked.loc[150:, "loss"] = np.inf
    found = compare_curves(spiked, second)
    assert (found.kind, found.step) == ("different", 1510)


def test_only_common_steps_count_and_rows_in_any_order():
    first, second, *_ = pair("equal", 4)
    found = compare_curves(first.iloc[::-1], second.iloc[::3])
    assert found.kind == "equal" and found.steps == 100


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="step"), "column step is missing"),
        (lambda t: t.assign(step=t["step"] + 1), "0 common steps"),
        (lambda t: t.assign(loss=-1.0), "is not positive"),
    ],
)
def test_bad_curves_are_one_line(change, words):
    first, second, *_ = pair("equal", 5)
    with pytest.raises(InputError, match=words):
        compare_curves(change(first), second)


def test_the_command_reads_logs_without_batch_sizes_and_its_status_tells(tmp_path, capsys):
    first, second, *_ = pair("scaled", 6)
    first.to_csv(tmp_path / "a.csv", index=False)
    second.to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl")]
    assert main(["check", *files, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["agreement"]["kind"] == "scaled" and told["column"] == "loss"
    assert main(["check", files[0], files[0]]) == 0
    assert "equal within their noise" in capsys.readouterr().out


def test_a_table_of_several_runs_needs_a_name(tmp_path, capsys):
    first, second, *_ = pair("different", 7)
    both = pd.concat([first.assign(run="a"), second.assign(run="b")])
    both.to_csv(file := tmp_path / "runs.csv", index=False)
    assert main(["check", str(file), str(file)]) == 2
    assert "has 2 runs; name one of a, b" in capsys.readouterr().err
    line = ["check", str(file), str(file), "--first-run", "a", "--second-run", "b"]
    assert main(line) == 1
    assert "different from step" in capsys.readouterr().out
