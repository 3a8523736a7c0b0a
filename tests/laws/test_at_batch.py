"""Tokens and steps at any batch size: right values, forms, and inputs that lack something."""

import json

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from bss.laws.at_batch import INTERPOLATION, Steps, steps_at_batch

POINTS = "results/published/mlperf_rcp.csv"
KEPT = "model=llama31_8b"
TOKENS = {48: 1.71e9, 96: 2.34e9}


@pytest.fixture(scope="module")
def fit():
    return bss.fit_es(POINTS, keep=KEPT, resamples=20)


def test_tokens_at_batch_sizes_between_those_measured(fit):
    found = fit.predict(loss=3.3, batch=[*TOKENS])
    assert found["tokens"].tolist() == pytest.approx([*TOKENS.values()], rel=0.003)
    assert (found["tokens_low"] < found["tokens"]).all()
    assert (found["tokens"] < found["tokens_high"]).all()
    assert all("80 runs at 4 batch sizes" in note and "(points)" in note for note in found["note"])


def test_a_critical_fit_has_the_same_answer(fit):
    critical = bss.fit_critical(POINTS, keep=KEPT, reference="smallest", resamples=20)
    found = critical.predict(batch=[*TOKENS])
    wanted = fit.predict(loss=3.3, batch=[*TOKENS])
    for name in ("tokens", "tokens_low", "tokens_high", "steps"):
        assert found[name].tolist() == pytest.approx(wanted[name].tolist(), rel=1e-6)
    assert critical.predict(loss=3.3, batch=48)["tokens"][0] == found["tokens"][0]


def test_points_without_a_sequence_length_answer_in_sequences(fit):
    table = pd.read_csv(POINTS, comment="#").drop(columns="seq_len")
    bare = bss.fit_es(table, keep=KEPT, resamples=20)
    assert bare.in_sequences and any("tokens are sequences" in text for text in bare.warnings)
    wanted = fit.predict(loss=3.3, batch=48)["tokens"][0] / fit.seq_len
    assert bare.predict(loss=3.3, batch=48)["tokens"][0] == pytest.approx(wanted)
    with pytest.raises(InputError, match="no sequence length"):
        bare.schedule("10B")


def test_commands_answer_with_what_was_used(fit, tmp_path, capsys):
    fit.save(tmp_path / "fit.json")
    again = bss.read_fit(tmp_path / "fit.json")
    assert again.source == "points"
    question = ["--loss", "3.3", "--batch", "96", "--json"]
    assert main(["predict", "--from", str(tmp_path / "fit.json"), *question]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert entry["tokens"]["value"] == pytest.approx(2.34e9, rel=0.003)
    assert "S = a + b/B through 80 runs" in entry["note"]
    assert (
        main(["predict", "--from", str(tmp_path / "fit.json"), *question[:2], "--batch", "8"]) == 2
    )
    assert "outside the measured 16 to 128" in capsys.readouterr().err


def test_a_batch_size_of_another_target_is_outside(tmp_path, capsys):
    sizes = {2.0: (4, 8, 16), 1.8: (32, 64, 128)}
    rows = [
        {
            "target_loss": loss,
            "batch": b,
            "seq_len": 64,
            "steps": 9000 * (2.5 - loss) * (1 + 40 / b),
        }
        for loss, batches in sizes.items()
        for b in batches
    ]
    found = bss.fit_es(pd.DataFrame(rows), resamples=20)
    assert "target losses have different batch sizes: 1.8 (at 32, 64, 128)" in found.warnings[-1]
    notes = found.predict(pd.DataFrame({"target_loss": [1.8, 1.8, 1.9], "batch": [8, 64, 64]}))
    outside = [note.partition("; ")[2] for note in notes["note"]]
    assert outside == [
        "batch 8: outside the measured 32 to 128", "", "batch 64: outside the measured 4 to 16"
    ]  # fmt: skip
    found.save(tmp_path / "fit.json")
    ask = ["predict", "--from", str(tmp_path / "fit.json"), "--loss", "1.8", "--batch"]
    assert main([*ask, "64"]) == 0
    assert main([*ask, "8"]) == 2
    assert "--batch 8: outside the measured 32 to 128" in capsys.readouterr().err


def hyperbola(target, batches=(8, 16, 32, 64), scale=1.0):
    """Return noiseless steps 1000·(1 + 40/B)."""
    batch = np.array(batches, float)
    return Steps.of_runs(target, batch, scale * 1000 * (1 + 40 / batch))


def test_three_batch_sizes_answer_and_two_do_not():
    found = steps_at_batch([hyperbola(3.0, (8, 16, 32))], 64, 3.0, 0.9).steps
    assert found.value == pytest.approx(1625, rel=1e-3) and found.low < 1625 < found.high
    with pytest.raises(InputError, match="2 batch sizes; steps at another one need 3"):
        steps_at_batch([hyperbola(3.0, (8, 16))], 64, 3.0, 0.9)


def test_between_targets_log_steps_are_linear_in_the_loss():
    targets = [hyperbola(3.0), hyperbola(2.8, scale=4.0)]
    found = steps_at_batch(targets, 64, 2.9, 0.9).steps
    assert found.value == pytest.approx(2 * 1625, rel=1e-3)
    with pytest.raises(InputError, match=r"2\.5 is not between the targets 2\.8, 3"):
        steps_at_batch(targets, 64, 2.5, 0.9)


def test_where_the_form_does_not_fit_steps_are_interpolated():
    batch = np.array([4, 8, 16, 32, 64, 128, 256], float)
    steps = 1e5 / batch * (1 + np.log2(batch / 32) ** 2 / 20)  # fewest tokens inside
    found = steps_at_batch([Steps.of_runs(3.0, batch, steps)], 48, 3.0, 0.9)
    truth = 1e5 / 48 * (1 + np.log2(48 / 32) ** 2 / 20)
    assert found.source.startswith(INTERPOLATION)
    assert found.steps.low < truth < found.steps.high


@pytest.mark.slow  # 100 trials; the tests above have one interval each
def test_intervals_hold_the_steps_of_new_runs():
    generator = np.random.default_rng(0)
    held = []
    for _ in range(100):
        batch = np.repeat([8.0, 16.0, 32.0, 64.0, 128.0], 2)
        bend = generator.uniform(10, 200)
        steps = 1000 * (1 + bend / batch) * np.exp(0.02 * generator.standard_normal(10))
        new = float(np.exp(generator.uniform(np.log(8), np.log(256))))
        found = steps_at_batch([Steps.of_runs(3.0, batch, steps)], new, 3.0, 0.9).steps
        held.append(
            found.low
            < 1000 * (1 + bend / new) * np.exp(0.02 * generator.standard_normal())
            < found.high
        )
    assert 0.83 <= np.mean(held) <= 1.0, np.mean(held)
