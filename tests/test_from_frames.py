"""Fits from a user's tables at the first call: frames, files, points, and other dtypes."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import bss
from bss.cli import main
from bss.errors import InputError

SEQ_LEN = 64
BATCHES = (2, 4, 8, 16, 64)  # fewer than six: no law is cross-validated
QUICK = {"law": "hyperbola", "resamples": 20}
FLAGS = ["--law", "hyperbola", "--resamples", "20", "--json"]


def loss(tokens, batch):
    """A planted law: B_opt grows as the loss falls."""
    steps = tokens / (batch * SEQ_LEN)
    return 1.5 + 40 * (tokens + 20_000 * batch**0.5) ** -0.3 + 14 * steps**-0.55


def curves(seq_len=SEQ_LEN, prefix="run", noise=0.002):
    draw = np.random.default_rng(0)
    frames = []
    for batch in BATCHES:
        for seed in (0,):
            tokens = np.unique(np.geomspace(5e4, 2e6, 40) // (batch * seq_len)) * batch * seq_len
            measured = loss(tokens, batch) * np.exp(noise * draw.standard_normal())
            columns = {"tokens": tokens.astype(int), "loss": measured, "batch": batch}
            columns |= {"seq_len": seq_len, "seed": seed, "comment": "any text"}
            frames.append(pd.DataFrame(columns).assign(run=f"{prefix}-{batch}-{seed}"))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def runs():
    return curves()


def test_a_frame_a_file_and_points_give_one_fit(runs, tmp_path):
    path = tmp_path / "runs.parquet"
    runs.to_parquet(path)
    fit = bss.fit_es(runs, [2.9, 2.7], **QUICK)
    assert [at.target_loss for at in fit.fits] == [2.9, 2.7]
    points, warnings = bss.measure_points(runs, [2.9, 2.7])
    assert bss.fit_es([str(path)], (2.9, "2.7"), **QUICK).to_dict() == fit.to_dict()
    by_points = bss.fit_es(points, **QUICK)
    assert by_points.summary().equals(fit.summary()) and warnings == []
    found = fit.predict(loss=2.7, batch=[8, 16])
    assert np.isfinite(found[["tokens_low", "tokens", "tokens_high"]]).all(axis=None)
    one = bss.fit_es(runs, 2.7, **QUICK)
    alone = one.predict(loss=2.7, batch=[8, 16])
    assert len(one.fits) == 1 and (alone["tokens_low"] < alone["tokens_high"]).all()
    width = np.log(alone["tokens_high"] / alone["tokens_low"])
    np.testing.assert_allclose(width, np.log(found["tokens_high"] / found["tokens_low"]), rtol=0.6)


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow", "object", "category"])
def test_other_dtypes_and_indices_change_nothing(runs, backend):
    kinds = {
        "object": lambda x: x.astype(object),
        "category": lambda x: x.astype({"run": "category"}),
    }
    other = kinds[backend](runs) if backend in kinds else runs.convert_dtypes(dtype_backend=backend)
    other.index = [f"row {i}" for i in range(len(other))]
    expected = bss.measure_points(runs, [2.8])[0]
    found = bss.measure_points(other, [2.8])[0]
    assert found["steps"].tolist() == pytest.approx(expected["steps"].tolist())


def test_a_fit_of_a_command_is_the_one_of_python(runs, tmp_path, capsys):
    path = tmp_path / "runs.csv"
    runs.to_csv(path, index=False)
    assert main(["fit", "es", str(path), "--targets", "2.9,2.7", *FLAGS]) == 0
    told = json.loads(capsys.readouterr().out)
    fit = bss.fit_es(path, [2.9, 2.7], **QUICK)
    fit.save(tmp_path / "fit.json")
    assert told == json.loads((tmp_path / "fit.json").read_text())
    assert main(["points", str(path), "--targets", "2.7", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [x["steps"] for x in points] == bss.measure_points(path, 2.7)[0]["steps"].tolist()


def test_targets_that_nobody_reaches_are_refused_in_one_line(runs):
    with pytest.raises(InputError, match=r"0\.5") as refusal:
        bss.fit_es(runs, [0.5])
    assert "\n" not in str(refusal.value)


def test_two_sequence_lengths_have_answers_apart(runs):
    both = pd.concat([runs, curves(2 * SEQ_LEN, "long")])
    apart = bss.fit_es(both, [2.9, 2.7], **QUICK)
    assert [*apart] == [SEQ_LEN, 2 * SEQ_LEN]
    assert apart[SEQ_LEN].summary().equals(bss.fit_es(runs, [2.9, 2.7], **QUICK).summary())
    assert [line[:12] for line in apart.answer.splitlines()] == ["seq_len 64: ", "seq_len 128:"]
    assert len(apart.summary()) == 4 and "<h4>seq_len 128</h4>" in apart._repr_html_()
    assert apart.predict(loss=2.7, batch=8)["seq_len"].tolist() == [SEQ_LEN, 2 * SEQ_LEN]
    assert [*apart.best_batch(loss=2.7)] == [*apart]
    ramps = apart.schedule("2M", policy="late-switch", at=0.8)
    assert bss.plan(ramps, "2M", SEQ_LEN).schedule == ramps[SEQ_LEN].schedule
    with pytest.raises(InputError, match="no schedule of 32; choose one of 64, 128"):
        bss.plan(ramps, "2M", 32)
    axes = apart.plot()
    assert [ax.get_title(loc="right")[:3] for ax in axes] == ["64-", "128"]
    for ax in axes:
        pyplot.close(ax.figure)
    with pytest.raises(InputError, match="choose one of 64, 128"):
        apart[32]


def test_rows_and_columns_are_chosen_as_on_the_command_line(runs):
    renamed = runs.rename(columns={"batch": "gbsz"}).drop(columns="seq_len")
    how = {"columns": {"batch": "gbsz"}, "seq_len": SEQ_LEN, "drop": "run=run-64-*"}
    points, _ = bss.measure_points(renamed, 2.8, **how)
    assert sorted(points["batch"].unique()) == [2, 4, 8, 16]
