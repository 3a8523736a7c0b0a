"""Branches from checkpoints: penalties, the last crossing, what is left out, and the schedule."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from tests.cli.called import printed, refused

PENALTIES = (
    0.0687,
    0.051,
    0.036,
    0.040,
    0.0288,
    0.025,
    0.0254,
    0.0206,
    0.0166,
    0.0126,
    0.0143,
    0.0129,
)
STEP = 131_072  # tokens of a step of the trunk


def table(penalties=PENALTIES, factors=(16,)):
    """Branches at every 1,000 steps, with these penalties, less at a smaller factor."""
    rows = []
    for i, penalty in enumerate(penalties, 1):
        fork = 1000 * i * STEP
        for factor in (1, *factors):
            loss = 3.8 - 0.04 * i + penalty * math.log2(factor) / math.log2(max(factors))
            plain = {"run": f"a{i}-b{128 * factor}", "batch": 128 * factor, "seq_len": 1024}
            rows.append({**plain, "tokens": fork + 1024 * STEP, "loss": loss, "fork": fork})
    return pd.DataFrame(rows)


def test_the_batch_may_grow_from_step_8150():
    fit = bss.fit_branches(table())
    (one,) = fit.grown
    assert (one.batch, one.factor, one.checkpoints) == (2048, 16, 12)
    assert (one.first_penalty, one.last_penalty) == pytest.approx((0.0687, 0.0129))
    assert fit.trunk_step(one.tokens.value) == pytest.approx(8150, abs=1)  # .0206 at 8,000, .0166
    assert one.tokens.low < one.tokens.value < one.tokens.high < 9000 * STEP
    assert one.tokens.low > 7000 * STEP
    assert "only the hidden matrices" in fit.warnings[-1]
    assert fit.penalties()["penalty"].to_numpy() == pytest.approx(PENALTIES)


def test_the_schedule_of_branches():
    fit = bss.fit_branches(table())
    schedule = fit.schedule("3B")
    at = math.ceil(fit.grown[0].tokens.value)
    assert (schedule.schedule.starts, schedule.schedule.batches) == ((0, at), (128, 2048))
    assert "tokens 3e+09" in schedule.warnings[0] or "outside" in schedule.warnings[0]
    assert bss.schedule(fit, "3B").schedule == schedule.schedule
    later = fit.schedule("3B", tolerance=0.015).schedule.starts[1]
    assert later > at
    with pytest.raises(InputError, match="no switch is identified"):
        fit.schedule("3B", tolerance=0.001)


def test_several_factors_come_one_after_the_other():
    fit = bss.fit_branches(table(factors=(4, 16)))
    first, second = fit.grown
    assert (first.factor, second.factor) == (4, 16)
    assert first.tokens.value < second.tokens.value
    assert fit.schedule("3B").schedule.batches == (128, 512, 2048)
    assert fit.schedule("3B", stages=2).schedule.batches == (128, 2048)
    assert fit.best_batch(fit.grown[0].tokens.value + 1).value == 512
    assert fit.best_batch(1e6).value == 128


def test_a_fit_reads_back(tmp_path, capsys):
    fit = bss.fit_branches(table())
    fit.save(tmp_path / "fit.json")
    again = bss.read_fit(tmp_path / "fit.json")
    assert again == fit
    assert again.predict(tokens=5e8, batch=2048)["penalty"][0] == pytest.approx(0.037, abs=0.004)
    assert again.residuals()["residual"].abs().max() < 0.01
    ask = ("predict", "--from", str(tmp_path / "fit.json"), "--tokens", "500M", "--batch")
    found = printed(capsys, *ask, "2048")["penalty"]
    assert found["value"] == pytest.approx(0.037, abs=0.004)
    assert "no smooth penalty; choose one of 2048" in refused(capsys, *ask, "4")


def test_other_spellings_are_one_table():
    plain = bss.fit_branches(table())
    names = {"batch": "batch_size", "fork": "Checkpoint Tokens", "loss": "val_loss"}
    other = table().rename(columns=names)[::-1]
    assert bss.fit_branches(other[list(other)[::-1]]).grown == plain.grown
    steps = table().assign(fork_step=lambda t: t["fork"] // STEP).drop(columns="fork")
    assert bss.fit_branches(steps).grown == plain.grown
    suffixed = table().assign(fork=lambda t: [f"{x / 1e6:.6f}M" for x in t["fork"]])
    assert bss.fit_branches(suffixed).grown == plain.grown
    curves = pd.concat([table(), table().assign(tokens=lambda t: t["tokens"] - STEP, loss=9.0)])
    assert bss.fit_branches(curves).grown == plain.grown


def test_branches_without_a_trunk_are_left_out():
    whole = table()
    some = whole.loc[~((whole["batch"] == 128) & (whole["fork"] == 3000 * STEP))]
    fit = bss.fit_branches(some)
    assert fit.grown[0].checkpoints == 11
    assert "left out: forks at 393M: no branch at the trunk's batch 128" in fit.warnings[0]
    longer = whole.assign(
        tokens=whole["tokens"] + (whole["fork"] == 5000 * STEP) * (whole["batch"] > 128) * 10**8
    )
    assert "ends at other tokens" in bss.fit_branches(longer).warnings[0]
    with pytest.raises(InputError, match="no checkpoint has branches at two batch sizes"):
        bss.fit_branches(whole.loc[whole["batch"] == 2048])
    alternating = whole.loc[(whole["fork"] // STEP // 1000 % 2 == 1) == (whole["batch"] == 128)]
    with pytest.raises(InputError, match="no branch at the trunk's batch 128") as error:
        bss.fit_branches(alternating)
    assert "\n" not in str(error.value)


def test_few_checkpoints_have_penalties_and_no_position():
    fit = bss.fit_branches(table(PENALTIES[:3]))
    assert fit.grown[0].tokens.value is None
    assert "too few checkpoints" in fit.grown[0].tokens.why
    assert len(fit.penalties()) == 3
    assert fit.residuals()["fitted"].isna().all()


def test_a_penalty_that_stays_has_no_position():
    fit = bss.fit_branches(table(np.linspace(0.05, 0.03, 12)))
    assert fit.grown[0].tokens.value is None
    assert "from no known position on" in fit.answer
    small = bss.fit_branches(table(np.linspace(0.01, 0.003, 12)))
    assert small.grown[0].tokens.value == 0
    assert small.schedule("2B").schedule.batches == (2048,)
    negative = bss.fit_branches(table(np.linspace(0.06, -0.01, 12)))
    assert negative.grown[0].tokens.value == pytest.approx(7286 * STEP, rel=0.01)


def test_the_commands(tmp_path, capsys):
    file, fit = tmp_path / "branches.csv", tmp_path / "fit.json"
    table().to_csv(file, index=False)
    entry = printed(capsys, "fit", "branches", file, "--tolerance", "0.02")
    assert entry["grown"][0]["tokens"]["value"] == pytest.approx(8150 * STEP, abs=STEP)
    fit.write_text(json.dumps(entry))
    made = printed(capsys, "schedule", "--from", fit, "--tokens", "3B")
    assert made["policy"] == "last-crossing"
    assert [segment["batch"] for segment in made["plan"]["segments"]] == [128, 2048]
    assert main(["fit", "branches", str(file), "--plot", str(tmp_path / "a.svg")]) == 0
    assert "8,150 of the trunk" in capsys.readouterr().out
    table().drop(columns="fork").to_csv(file, index=False)
    assert "no column fork or fork_step" in refused(capsys, "fit", "branches", str(file))
