"""A run as a path: pieces of its schedule as measured and as planned, and the losses read."""

import numpy as np
import pandas as pd
import pytest

from bss.laws.functional.data import READINGS, SEGMENTS, curves_of, plan_path, stack
from bss.laws.functional.law import law_losses
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve


def test_long_runs_are_thinned_and_keep_their_integrals():
    steps = np.arange(1, 5001)
    lr = 1e-3 * (1 + np.cos(np.pi * steps / 5000)) / 2
    frame = pd.DataFrame({"run": "x", "step": steps, "batch": 4, "seq_len": 8, "lr": lr})
    curves = curves_of(frame.assign(loss=3 + 1 / steps))
    assert curves.weight.sum() <= READINGS
    assert (curves.segments.steps > 0).sum() <= SEGMENTS + 40
    assert curves.segments.steps.sum() == pytest.approx(5000)
    time = (curves.segments.steps * curves.segments.lr).sum()
    assert time == pytest.approx(lr.sum(), rel=1e-3)


def test_a_switch_between_rows_is_found_and_warm_up_shortens_time():
    frame = pd.DataFrame({"run": "x", "step": [10, 20, 30, 40], "batch": [2, 2, 8, 8]})
    frame = frame.assign(seq_len=10, lr=1.0, loss=[4.0, 3.0, 2.5, 2.4])
    frame["tokens"] = [200, 400, 400 + 4 * 20 + 6 * 80, 960 + 800]
    curves = curves_of(frame)
    batch = curves.segments.batch[0]
    steps = curves.segments.steps[0]
    assert steps[batch == 2].sum() == pytest.approx(24)
    assert steps[batch == 8].sum() == pytest.approx(16)
    warm = curves_of(frame, warmup=150)
    time = (warm.segments.steps * warm.segments.lr).sum()
    assert time == pytest.approx(40 - 150 / 20 / 2)


def plan_table(
    text: str, rate: rates.WarmupStableDecay, tokens: int, seq_len: int, rows: int
) -> pd.DataFrame:
    """The rows that a trainer would write of a schedule; losses are none of a law."""
    schedule = BatchSchedule.parse(text, total=tokens)
    plan = resolve(schedule, tokens, seq_len, rate=rate)
    steps = sorted({plan.step_at(round(x)) for x in np.geomspace(0.02 * tokens, tokens, rows)})
    last = [plan.at(step - 1) for step in steps]
    frame = pd.DataFrame({"run": text, "step": steps, "seq_len": seq_len, "loss": 2.0})
    frame["tokens"] = [plan.tokens_at(step) for step in steps]
    frame["batch"] = [spec.batch for spec in last]
    return frame.assign(lr=[spec.settings.lr for spec in last])


@pytest.mark.parametrize(
    ("text", "warmup", "decay", "shape", "rows", "off"),
    [
        ("4", 20_000, 0, "linear", 40, 1e-5),
        ("4", 60_000, 0, "linear", 40, 1e-5),
        ("4", 300_000, 0, "linear", 40, 1e-4),
        ("0:2 1M:8", 30_000, 0, "linear", 40, 1e-5),
        ("4", 40_000, 400_000, "linear", 400, 1e-5),
        ("0:1 30%:4 80%:16", 20_000, 1_980_000, "cosine", 400, 1e-4),
    ],
)
def test_a_plan_and_its_table_are_one_path(planted_curves, text, warmup, decay, shape, rows, off):
    tokens, seq_len = planted_curves.tokens, planted_curves.seq_len
    rate = rates.wsd(4e-3, tokens, warmup, decay, shape)
    curves = curves_of(plan_table(text, rate, tokens, seq_len, rows), warmup=warmup)
    law = planted_curves.law._replace(p=1.3, B_phi=3.0)
    read = curves.weight[0] > 0
    schedule, at = BatchSchedule.parse(text, total=tokens), curves.tokens[0][read]
    path = plan_path(schedule, tokens, seq_len, rate, at)
    found = law_losses(law, stack([path], seq_len))[0, : len(at)]
    np.testing.assert_allclose(law_losses(law, curves)[0][read], found, rtol=off)


def test_rows_of_the_schedule_alone_and_runs_of_one_loss_are_read(planted_curves):
    runs = planted_curves.table(("1", "4", "0:1 50%:8"))
    last = ~runs.duplicated("run", keep="last")
    ends = runs.assign(loss=runs["loss"].where(last | (runs["run"] == "4")))
    ends.loc[ends["run"] == "1", "loss"] = np.nan
    curves = curves_of(ends)
    assert curves.runs == ("4", "0:1 50%:8")
    assert curves.without_loss == ("1",)
    assert curves.weight.sum(axis=1).tolist() == [32, 1]
    assert curves.measured == 41
    law = planted_curves.law
    whole = curves_of(runs.loc[runs["run"] == "0:1 50%:8"])
    at_end = law_losses(law, curves)[1, 0], law_losses(law, whole)[0, 31]
    np.testing.assert_allclose(at_end, curves.loss[1, 0], rtol=1e-4)
