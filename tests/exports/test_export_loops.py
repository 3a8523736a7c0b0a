"""Exports for a loop that is no trainer's: the numbers of every step, and loops that train."""

import sys
import types

import numpy as np
import pytest

import bss
from bss.errors import InputError
from bss.exports import export
from tests.schedules.drawn_plans import drawn_plan, places
from tests.training.own_loop import Loader, loss_fn, start, trained

COUPLING = bss.Coupling(
    lr="sqrt", reference_batch=8, beta1=0.8, beta2_half_life=2000, weight_decay=0.1
)
LR = bss.LRSchedule("wsd", peak=1e-2, warmup="10%", decay="20%", shape="cosine", floor=0.1)
PLAN = bss.plan("0:8 960:16 2400:64", tokens=6240, seq_len=12, lr=LR, coupling=COUPLING)


def executed(text):
    names = {"__name__": "exported"}
    exec(text, names)
    return types.SimpleNamespace(**names)


@pytest.mark.parametrize("plans", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_python_has_the_numbers_of_drawn_plans(plans):
    for number in range(plans):
        plan = drawn_plan(number)
        code = executed(export(plan, "python"))
        assert plan.steps == code.STEPS
        for step in places(plan):
            at = plan.at(step)
            assert (code.batch(step), code.accumulation(step, 4, 2)) == (at.batch, at.batch // 8)
            assert code.rate(step) == pytest.approx(at.lr, rel=1e-9, abs=1e-15)
            assert code.step_at(at.tokens) == step == code.step_at(at.tokens + 1)
        assert code.step_at(plan.budget) == plan.steps


@pytest.mark.parametrize("plan", [PLAN, bss.plan("128-512:50%", "1B", 512, lr=LR)])
def test_python_is_short_and_needs_no_package(plan):
    text = export(plan, "python")
    assert len(text.splitlines()) <= 60
    imports = [line for line in text.splitlines() if "import" in line]
    assert imports == ["import math", "from bisect import bisect_right"]


def test_python_sets_betas_and_weight_decay_of_each_batch_size():
    code = executed(export(PLAN, "python"))
    for step in PLAN:
        found = code.adamw(step.step)
        settings = step.settings
        assert found.pop("lr") == pytest.approx(settings.lr)
        assert found == {"betas": (settings.beta1, settings.beta2), "weight_decay": 0.1}
    with pytest.raises(AssertionError, match="8 must be a multiple of 16"):
        code.accumulation(0, 8, 2)


def test_python_without_a_learning_rate_asks_for_one():
    code = executed(export(bss.plan(8, tokens="1K", seq_len=4), "python"))
    with pytest.raises(AssertionError, match="set PEAK to your peak LR"):
        code.rate(0)


class Number(float):
    """A loss of one parameter, with the parts of PyTorch's tensors that the loop uses."""

    def __truediv__(self, other):
        return Number(float(self) / other)

    def backward(self):
        GRADIENTS.append(float(self))

    def detach(self):
        return float(self)


GRADIENTS: list[float] = []


def test_the_loop_of_torch_takes_the_rows_and_settings_of_the_plan(monkeypatch):
    torch = types.SimpleNamespace(nn=types.SimpleNamespace(utils=types.SimpleNamespace()))
    torch.nn.utils.clip_grad_norm_ = lambda parameters, clip: None
    monkeypatch.setitem(sys.modules, "torch", torch)
    groups = [{"weight_decay": 0.3}, {"weight_decay": 0.0}]
    used = []
    optimizer = types.SimpleNamespace(
        param_groups=groups,
        step=lambda: used.append((dict(groups[0]), groups[1]["weight_decay"])),
        zero_grad=lambda: None,
    )
    taken = []

    def take(count):
        taken.append(count)
        return Number(len(taken))

    code = executed(export(PLAN, "torch"))
    model = types.SimpleNamespace(parameters=lambda: [])
    losses = code.train(model, lambda model, rows: rows, optimizer, take, micro_batch=4)
    found = list(losses)
    assert [step for step, _ in found] == list(range(PLAN.steps))
    assert sum(taken) * PLAN.seq_len == PLAN.tokens and {*taken} == {4}
    assert found[0][1] == sum(GRADIENTS[:2]) == (1 + 2) / 2
    for step, (group, undecayed) in zip(PLAN, used, strict=True):
        settings = step.settings
        assert group["lr"] == pytest.approx(settings.lr) and undecayed == 0.0
        assert group["betas"] == (settings.beta1, settings.beta2)
        assert group["weight_decay"] == 0.1
    assert "too long" in export(PLAN, "torch")
    assert "too long" not in export(bss.plan(8, tokens="1K", seq_len=4, lr=LR), "torch")


def test_the_loop_of_jax_is_the_plan_and_trains():
    code = executed(export(PLAN, "jax"))
    assert code.plan.segments == PLAN.segments and code.plan.coupling == PLAN.coupling
    found = list(code.train(loss_fn, start(), Loader(), 4))
    losses = [float(loss) for _, _, _, loss, _ in found]
    assert len(losses) == PLAN.steps and losses[-1] < losses[0]
    step, params, opt_state, _, stats = found[PLAN.steps // 2]
    assert stats.noise_trace.shape == ()
    first = step.step + 1
    rest = code.train(
        loss_fn, params, Loader(code.plan.tokens_at(first) // 12), 4, opt_state, first
    )
    assert [float(loss) for _, _, _, loss, _ in rest] == losses[first:]


def test_the_loop_of_jax_without_couplings_is_that_of_the_page():
    plan = bss.plan("0:8 960:16", tokens=2400, seq_len=12, lr=1e-2)
    code = executed(export(plan, "jax"))
    losses = [float(loss) for _, _, _, loss, _ in code.train(loss_fn, start(), Loader(), 4)]
    np.testing.assert_allclose(losses, trained(plan, 4)[0], rtol=1e-3)  # its decay is 1e-4
    unset = executed(export(bss.plan(8, tokens="1K", seq_len=12), "jax"))
    with pytest.raises(InputError, match="the plan sets no learning_rate"):
        next(unset.train(loss_fn, start(), Loader(), 4))


def test_a_learning_rate_that_jax_cannot_name_is_exported_as_code():
    plan = bss.plan(8, "1M", 64, lr=bss.LRSchedule("power", peak=1e-3, warmup="1%"))
    with pytest.raises(InputError, match=r"export it as code, to .*torch, python"):
        export(plan, "jax")
    assert executed(export(plan, "python")).rate(3) == pytest.approx(plan.at(3).lr)
