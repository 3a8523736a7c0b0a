"""The best batch size in a fixed time: right values, planted laws, and what is not identified."""

import json

import numpy as np
import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError

BATCHES = (32, 64, 128, 256, 512, 1024, 2048)


def contest():
    """Return five runs of 600 s whose parabola through the lowest three is lowest at 322."""
    steps = (6603, 6593, 8955, 13793, 18072)
    batch = (1024, 768, 512, 256, 128)
    loss = (3.42, 3.4018, 3.376, 3.3695, 3.4011)
    table = pd.DataFrame({"params": 2e7, "batch": batch, "seq_len": 1024, "steps": steps})
    tokens = table["batch"] * table["seq_len"] * table["steps"]
    return table.assign(tokens=tokens, seconds=600, loss=loss)


def planted(generator):
    """Return runs of equal time by a law of steps, and their best batch size."""
    critical = generator.uniform(150, 600)
    overhead = generator.uniform(100, 500)  # batch sizes whose time is that of an empty step
    power = generator.uniform(0.4, 1.0)
    noise = generator.uniform(0.002, 0.006)
    batch = np.array(BATCHES, float)
    steps = 2e6 / (overhead + batch)
    loss = 2.5 + 60.0**power * (steps / (1 + critical / batch)) ** -power
    loss += noise * generator.standard_normal(len(batch))
    table = pd.DataFrame({"batch": BATCHES, "steps": steps, "seconds": 600.0, "loss": loss})
    return table, float(np.sqrt(critical * overhead))


def planted_sum(generator):
    """Return runs whose loss is a sum of a term in steps and one in tokens, and the best batch."""
    overhead = generator.uniform(100, 500)
    power = generator.uniform(0.4, 1.0)
    share = generator.uniform(150, 600)

    def loss(batch):
        steps = 2e6 / (overhead + batch)
        return 2.5 + 60.0**power * steps**-power + (120 * share / (steps * batch)) ** 0.4

    batch = np.array(BATCHES, float)
    noise = generator.uniform(0.002, 0.006) * generator.standard_normal(len(batch))
    table = pd.DataFrame({"batch": BATCHES, "steps": 2e6 / (overhead + batch), "seconds": 600.0})
    grid = np.geomspace(32, 2048, 4001)
    return table.assign(loss=loss(batch) + noise), float(grid[loss(grid).argmin()])


def test_the_lowest_is_256_and_the_parabola_322():
    fit = bss.fit_loss(contest(), equal="seconds")
    assert fit.best_batch().value == pytest.approx(322, abs=0.5)
    assert 256 < fit.best_batch().low < 322 < fit.best_batch().high < 512
    (at,) = fit.optima
    assert at.lowest == 256 and at.by_law.low < at.by_law.value < at.by_law.high
    assert "322 sequences" in fit.answer and "by the law of steps" in fit.answer


def test_order_names_units_and_missing_columns_change_nothing():
    table = contest()
    hours = table.assign(wall_hours=table["seconds"] / 3600).drop(columns="seconds")
    tokens = table.assign(batch_tokens=table["batch"] * 1024).drop(columns=["batch", "seq_len"])
    others = {
        "order": table.sample(frac=1, random_state=1),
        "copies": pd.concat([table, table]),
        "hours": hours,
        "uneven": table.assign(seconds=600 + np.arange(5)),
        "few": table[["batch", "seconds", "loss"]],
        "held out": table.rename(columns={"loss": "eval_loss"}),
        "tokens": tokens,
    }
    for name, other in others.items():
        best = bss.fit_loss(other, equal="seconds").best_batch()
        unit = 1024 if name == "tokens" else 1
        assert best.value == pytest.approx(321.7 * unit, rel=1e-3), name
    assert bss.fit_loss(hours, equal="wall_hours").best_batch().value == pytest.approx(322, abs=1)


def test_the_option_is_named_where_rows_have_equal_seconds():
    fit = bss.fit_loss(contest(), resamples=200)
    assert any("--equal seconds finds the best batch" in text for text in fit.warnings)
    with pytest.raises(InputError, match="--equal seconds finds"):
        bss.fit_loss(contest().tail(3).assign(params=[1e7, 1e7, 1e7]))


def test_a_best_batch_at_the_end_is_a_bound():
    best = bss.fit_loss(contest().head(3), equal="seconds").best_batch()
    assert (best.value, best.status) == (None, "at_boundary") and best.high == 768


def test_equal_losses_have_no_best_batch():
    flat = contest().assign(loss=[3.4001, 3.4, 3.3999, 3.4, 3.4001])
    best = bss.fit_loss(flat, equal="seconds").best_batch()
    assert (best.value, best.low, best.high, best.status) == (None, None, None, "within_noise")


def test_several_times_have_an_answer_each():
    both = pd.concat([contest(), contest().assign(seconds=1200, loss=contest()["loss"] - 0.1)])
    fit = bss.fit_loss(both, equal="seconds")
    assert [at.cost for at in fit.optima] == pytest.approx([600, 1200])
    assert fit.best_batch(600).value == pytest.approx(fit.best_batch(1200).value)


def test_times_that_contradict_steps_leave_the_law_out():
    wrong = contest().assign(step_time=lambda t: 2 * t["seconds"] / t["steps"])
    fit = bss.fit_loss(wrong, equal="seconds")
    assert fit.best_batch().value == pytest.approx(322, abs=0.5)
    assert any("not 600" in text for text in fit.warnings) and "law of steps" not in fit.answer
    falling = contest().assign(steps=[18072, 13793, 8955, 6593, 6603]).drop(columns="tokens")
    texts = bss.fit_loss(falling, equal="seconds").warnings
    assert any("expected times that do not fall" in text for text in texts)


@pytest.mark.parametrize(
    ("table", "equal", "says"),
    [
        (contest().assign(seconds=[100, 200, 300, 400, 500]), "seconds", "at most 1 batch sizes"),
        (contest().drop(columns="seconds"), "seconds", "no such column"),
        (contest(), "flops", "--equal flops: table has no such column"),
        (contest().assign(loss=np.nan), "seconds", "no row has a finite one"),
        (contest().assign(seconds=-1), "seconds", "write a positive number"),
    ],
)
def test_bad_tables_are_one_line(table, equal, says):
    with pytest.raises(InputError, match=says):
        bss.fit_loss(table, equal=equal)


def test_the_command_and_its_json(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    contest().to_csv(path, index=False)
    arguments = ["--equal", "seconds", "--json", "--plot", str(tmp_path / "equal.png")]
    assert main(["fit", "loss", str(path), *arguments]) == 0
    text = capsys.readouterr().out
    entry = json.loads(text)
    assert entry["optima"][0]["B_opt"]["value"] == pytest.approx(322, abs=0.5)
    (tmp_path / "fit.json").write_text(text)
    assert main(["predict", "--from", str(tmp_path / "fit.json"), "--batch", "256", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"]["value"] == pytest.approx(3.3695)


@pytest.mark.slow  # 20 CPU seconds of refits
@pytest.mark.parametrize("plant", [planted, planted_sum])
def test_intervals_hold_what_was_planted(plant):
    held = {"parabola": [], "law": []}
    for seed in range(100):
        table, truth = plant(np.random.default_rng(seed))
        (at,) = bss.fit_loss(table, equal="seconds").optima
        for name, best in (("parabola", at.best), ("law", at.by_law)):
            if best.value is not None:
                held[name].append((best.low or 0) <= truth <= (best.high or np.inf))
    for name, known in held.items():
        assert len(known) >= 90, name
        assert 0.83 <= np.mean(known) <= 0.97, name
