"""Learning rates as ideas: what each says of itself, a user's own, and the ids that follow."""

import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bss.errors import InputError
from bss.exports import export
from bss.exports.base import with_batches
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.schedules.plan import resolve
from bss.schedules.rates import RATES, LearningRate
from bss.sweeps.branching import branched, decay_branch
from bss.sweeps.grid import overlay
from tests.cli.called import printed, refused
from tests.exports.exported import code_of

OWN = "tests.schedules.own:"
PLAN = ("plan", "--tokens=100K", "--seq-len=16", "--batch=0:4 20032:8", "--lr=4e-3")
SETTINGS: dict[str, Any] = {"warmup": 20_000, "decay": 30_000, "shape": "cosine", "floor": 0.25}


def schedule(rate: str) -> ScheduleConfig:
    kind = RATES.load(rate)
    own = {name: value for name, value in SETTINGS.items() if name in kind.takes}
    return ScheduleConfig(100_000, BatchSchedule((0, 20_032), (4, 8)), rate, **own)


@pytest.mark.parametrize(
    ("rate", "stable"),
    [
        *(("wsd", 70_000), ("cosine", 0), ("linear", 0), ("constant", math.inf), ("1-sqrt", 0)),
        *(("inverse_sqrt", 70_000), ("power", 70_000)),
        *((f"{OWN}HALVING", math.inf), (f"{OWN}RESTARTS", 0), (f"{OWN}COOLED", 70_000)),
    ],
)
def test_what_a_rate_says_of_itself_is_true(rate, stable):
    """Its stable part is the same for another stop, its code is its rate, all it takes matters."""
    one = schedule(rate)
    assert one.stable_tokens == stable and not one.unused
    counts = np.linspace(8, min(stable, 100_000), 50) if stable else []
    other = ScheduleConfig(**{**vars(one), "tokens": 150_000})
    first, longer = one.learning_rate(1.0), other.learning_rate(1.0)
    np.testing.assert_array_equal([first(x) for x in counts], [longer(x) for x in counts])
    differs = any(first(x) != longer(x) for x in np.linspace(8, 100_000, 50))
    assert differs == (stable < math.inf)
    for name in set(RATES[rate].takes) - {"tokens"}:
        changed = {"shape": "linear", "floor": 0.5}.get(name, 10_000)
        without = ScheduleConfig(**{**vars(one), name: changed}).learning_rate(1.0)
        assert any(first(x) != without(x) for x in np.linspace(8, 99_992, 100)), name
    plan = resolve(one.batch, one.tokens, 16, rate=one.learning_rate(4e-3))
    plan = with_batches(plan, (0, 20_480), (4, 8))  # which the export can follow
    code = code_of(export(plan, "huggingface"))
    steps = range(0, plan.steps, 7)
    found, wanted = [code.rate(s) for s in steps], [plan.at(s).settings.lr for s in steps]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    traced = jax.jit(first)(jax.numpy.array(3000.0)) if "COOLED" not in rate else first(3000.0)
    np.testing.assert_allclose(traced, first(3000.0), rtol=1e-6)


def test_a_rate_is_named_wherever_one_is(capsys, tmp_path, monkeypatch):
    plan = printed(capsys, *PLAN, "--lr-schedule=power", "--warmup=20%")
    assert plan["segments"][-1]["lr_end"] == pytest.approx(4e-3 * (20 / 99.84) ** 0.51, rel=1e-3)
    (tmp_path / "of_a_user.py").write_text(Path(__file__).with_name("own.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    plan = printed(capsys, *PLAN, "--lr-schedule=of_a_user:HALVING", "--warmup=10K")
    ends = [segment["lr_end"] for segment in plan["segments"]]
    middles = np.array([20_032 - 32, 99_904 - 64])
    assert ends == pytest.approx(4e-3 * 0.5 ** ((middles - 10_000) / 4096), rel=1e-4)


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ("cosin", "rate: 'cosin' is unknown; did you mean 'cosine'?"),
        ("optax:adamw", "rate: optax:adamw is function; expected LearningRate"),
        ("no_such_module:RATE", "rate: no_such_module:RATE cannot be imported"),
        (f"{OWN}NEGATIVE", f"rate: {OWN}NEGATIVE is -"),
        (f"{OWN}NAN", f"rate: {OWN}NAN is nan at 4"),
        (f"{OWN}FAILS", f"rate: {OWN}FAILS fails (IndexError: "),
        (f"{OWN}NO_FUNCTION", f"rate: {OWN}NO_FUNCTION makes float; expected a function"),
        ("power", "warmup: 0; "),
    ],
)
def test_what_is_no_rate_is_refused_in_a_line(capsys, rate, told):
    assert told in refused(capsys, *PLAN, f"--lr-schedule={rate}")


@pytest.mark.parametrize("make", [lambda peak, half_life: None, lambda: None, 3])
def test_a_rate_of_what_is_no_setting_is_refused(make):
    with pytest.raises(InputError, match="rate: make"):
        LearningRate(make)


@pytest.mark.parametrize("trainer", ["megatron", "levanter", "maxtext"])
def test_a_trainer_without_settings_for_a_rate_is_refused(capsys, trainer):
    told = refused(
        capsys, *PLAN, "--lr-schedule=inverse_sqrt", "--warmup=10%", f"--export={trainer}"
    )
    assert f"export: {trainer} has no settings for this LR schedule; export it as code" in told


def test_runs_of_other_lengths_share_a_trunk_where_the_rate_knows_no_stop(tiny_run):
    for rate, at, same in (
        *(("constant", 4096, True), ("inverse_sqrt", 4096, True), ("cosine", 0, False)),
        *((f"{OWN}HALVING", 4096, True), (f"{OWN}RESTARTS", 0, False)),
    ):
        trunk = overlay(tiny_run, {"schedule.batch": "4", "schedule.rate": rate})
        longer = overlay(trunk, {"schedule.tokens": 16_384})
        assert (longer.id == trunk.id) == same, rate
        assert branched(longer, [trunk], (2048, 4096, 9000)).start == at, rate
    decayed = overlay(tiny_run, {"schedule.decay": 2048, "schedule.batch": "4"})
    stable = overlay(decayed, {"schedule.decay": 0, "schedule.tokens": 16_384})
    assert branched(stable, [decayed], (2048, 6144, 7168)).start == 6144
    with pytest.raises(InputError, match=r"schedule\.rate is cosine, which takes no decay"):
        decay_branch(overlay(tiny_run, {"schedule.rate": "cosine"}), 0.2)


def test_a_function_without_code_is_not_exported():
    plan = resolve(BatchSchedule.constant(8), 10_000, 128, rate=lambda count: 1.0)
    with pytest.raises(InputError, match="custom function without code"):
        export(plan, "huggingface")
