"""Ramps from a measured noise scale: doublings at the last crossings, and what is left out."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError
from tests.cli.called import printed, refused

SIZE = 524_288  # tokens of a step


def table(noise=lambda step: 20_000 * step**0.45, scatter=0.0, rows=100):
    """Noise scales in tokens at every 100 steps."""
    step = np.arange(1, rows + 1) * 100
    error = np.random.default_rng(0).standard_normal(rows)
    scale = np.round(noise(step.astype(float)) * np.exp(scatter * error))
    return pd.DataFrame({"step": step, "tokens": step * SIZE, "loss": 3.0, "noise_scale": scale})


def test_doublings_of_a_power_of_the_steps():
    ramp = bss.schedule(from_noise=table())
    expected = [math.ceil((batch / 20_000) ** (1 / 0.45)) for batch in (2**18, 2**19, 2**20)]
    used = ramp.summary().dropna(subset="tokens")
    assert used["step"].tolist() == expected == [305, 1421, 6627]
    assert used["batch_tokens"].tolist() == [2**18, 2**19, 2**20]
    assert ramp.first == 2**17
    assert ((used["step_low"] <= used["step"]) & (used["step"] <= used["step_high"])).all()
    assert "left out: the switch to 2,097,152 tokens, not before" in ramp.warnings[0]
    in_sequences = bss.schedule(from_noise=table(), tokens="10B", seq_len=2048)
    assert in_sequences.schedule.batches == (64, 128, 256, 512)
    assert bss.plan(in_sequences, "10B", 2048).segments[1].batch == 128
    assert any("beyond 5.24B tokens nothing was measured" in text for text in in_sequences.warnings)
    with pytest.raises(InputError, match="is not a length in"):
        bss.plan(ramp, "10B", 2048)
    assert bss.plan(ramp, "10B").segments[0].batch == 2**17


def test_scatter_widens_the_intervals():
    narrow = bss.schedule(from_noise=table(scatter=0.05)).summary()
    wide = bss.schedule(from_noise=table(scatter=0.4)).summary()
    for ramp in (narrow, wide):
        assert ramp["tokens_low"][1] < 1421 * SIZE < ramp["tokens_high"][1]
    ratio = [np.log(ramp["tokens_high"][1] / ramp["tokens_low"][1]) for ramp in (narrow, wide)]
    assert ratio[1] > 3 * ratio[0]


def test_limits_of_the_ladder():
    how = {"from_noise": table(), "tokens": "5B", "seq_len": 2048}
    assert bss.schedule(**how, stages=2).schedule.batches == (64, 512)
    assert bss.schedule(**how, stages=1).schedule.batches == (64,)
    assert bss.schedule(**how, min_batch=48, max_batch=200).schedule.batches == (48, 96, 192)
    assert bss.schedule(**how, multiple_of=24).schedule.batches == (48, 96, 192, 384)
    with pytest.raises(InputError, match="above every noise scale"):
        bss.schedule(**how, min_batch=100_000)


def test_a_noise_scale_that_falls_ends_the_doublings():
    peak = bss.schedule(
        from_noise=table(lambda step: 6e5 * np.exp(-(np.log(step / 2000) ** 2) / 3))
    )
    assert ("falls after" in " ".join(peak.warnings)) == 1
    last = float(table()["tokens"].max())
    for one in peak.switches:
        assert one.tokens.value is None or one.tokens.value < last
    falling = bss.schedule(from_noise=table(lambda step: 4e6 / step**0.45))
    assert len(falling.schedule.batches) == 1
    dip = bss.schedule(
        from_noise=table(lambda s: 20_000 * s**0.45 * (1 - 0.6 * ((s > 2000) & (s < 4000))))
    )
    assert dip.summary()["step"][1] > 3500  # the last crossing of 512K, not the first


def test_rows_that_are_not_above_0_are_left_out():
    rows = table()
    rows.loc[[3, 10, 11], "noise_scale"] = [-5.0, 0.0, np.nan]
    ramp = bss.schedule(from_noise=rows)
    assert "left out: 3 of 100 rows" in ramp.warnings[0]
    assert ramp.summary()["step"][:3].tolist() == [305, 1421, 6627]
    with pytest.raises(InputError, match="0 positions with a noise scale above 0"):
        bss.schedule(from_noise=rows.assign(noise_scale=-1.0, batch=64))


def test_other_spellings_are_one_table():
    plain = bss.schedule(from_noise=table()).schedule
    named = table().rename(columns={"noise_scale": "GNS", "tokens": "tokens seen", "step": "iter"})
    assert bss.schedule(from_noise=named[list(named)[::-1]][::-1]).schedule == plain
    by_steps = table().assign(batch_tokens=SIZE).drop(columns="tokens")
    assert bss.schedule(from_noise=by_steps).schedule == plain
    sequences = table().assign(
        batch=256, seq_len=2048, noise_scale=lambda t: t["noise_scale"] / 2048
    )
    ramp = bss.schedule(from_noise=sequences)
    assert ramp.schedule.batches == (64, 128, 256, 512)
    assert "read in sequences" in ramp.warnings[0]
    tokens = bss.schedule(from_noise=table().assign(batch=256, seq_len=2048))
    assert tokens.schedule == ramp.schedule
    columns = {
        "from_noise": table().rename(columns={"noise_scale": "x"}),
        "columns": "noise_scale=x",
    }
    assert bss.schedule(**columns).schedule == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="noise_scale"), "no column noise_scale"),
        (lambda t: t.drop(columns="tokens"), "no column tokens"),
        (lambda t: t.head(5), "5 positions"),
        (lambda t: t.assign(run=["a", "b"] * 50, batch=[8, 16] * 50), "differ in batch"),
        (lambda t: t.assign(seq_len=[64, 128] * 50), "seq_len is 64, 128"),
    ],
)
def test_bad_tables_are_one_line(change, message):
    with pytest.raises(InputError, match=message) as error:
        bss.schedule(from_noise=change(table()))
    assert "\n" not in str(error.value)


def test_what_schedule_takes():
    with pytest.raises(InputError, match="give a fit, or from_noise=TABLE"):
        bss.schedule()
    with pytest.raises(InputError, match="tokens: missing"):
        bss.schedule(bss.fit_branches)
    with pytest.raises(InputError, match="has no schedule"):
        bss.schedule("fit.json", "1B")


def test_the_command(tmp_path, capsys):
    file = tmp_path / "gns.csv"
    table().to_csv(file, index=False)
    arguments = ("schedule", "--from", str(file), "--tokens", "10B")
    entry = printed(capsys, *arguments)
    assert [row["step"] for row in entry["switches"][:3]] == [305, 1421, 6627]
    assert entry["plan"]["tokens"] <= 10**10
    assert main([*arguments, "--plot", str(tmp_path / "a.svg")]) == 0
    assert "262,144 from 159.6M tokens on (step 305)" in capsys.readouterr().out
    lr = ("--lr", "1e-3", "--warmup", "100steps", "--seq-len", "2048", "--export", "megatron")
    assert main([*arguments, *lr]) == 0
    assert "--lr-warmup-samples 6368" in capsys.readouterr().out
    assert "--seq-len" in refused(capsys, *arguments, "--export", "csv")
    assert "no policy" in refused(capsys, *arguments, "--policy", "late-switch")
    assert json.loads(json.dumps(entry)) == entry
