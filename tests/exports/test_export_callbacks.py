"""Callbacks of Lightning and composer: what is generated, and every batch and setting by it."""

import ast
import sys
import types

import pytest

import bss
from bss.exports import export
from bss.exports.programs import COMPOSER, LIGHTNING

MICRO = 4
LR = bss.LRSchedule("wsd", peak=1e-2, warmup="10%", decay="20%", shape="cosine", floor=0.1)
COUPLING = bss.Coupling(lr="sqrt", reference_batch=8, beta2_half_life=2000, weight_decay=0.1)
PLAN = bss.plan("0:8 1920:16 3840:32", tokens=7680, seq_len=12, lr=LR, coupling=COUPLING)
MOST_LINES = 40


class Sampler:
    """The indices of one rank, as PyTorch's DistributedSampler gives them unshuffled."""

    def __init__(self, dataset, num_replicas, rank):
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank

    def __iter__(self):
        return iter(range(self.rank, len(self.dataset), self.num_replicas))


@pytest.fixture
def code_of(monkeypatch):
    """What an export defines, with a stand-in for each class of a package."""

    def defined(trainer, plan=PLAN):
        for name in ("lightning", "lightning.pytorch", "composer"):
            monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(Callback=object))
        distributed = types.SimpleNamespace(DistributedSampler=Sampler)
        for name in ("torch", "torch.utils", "torch.utils.data"):
            monkeypatch.setitem(sys.modules, name, types.SimpleNamespace())
        monkeypatch.setitem(sys.modules, "torch.utils.data.distributed", distributed)
        names = {"__name__": "pasted"}
        exec(export(plan, trainer), names)
        return types.SimpleNamespace(**names)

    return defined


def optimizer():
    groups = [{"lr": 0.0, "weight_decay": 0.01}, {"lr": 0.0, "weight_decay": 0.0}]
    return types.SimpleNamespace(param_groups=groups)


def assert_follows(groups, step):
    """Both groups have the plan's settings of a step; a weight decay of 0 stays."""
    settings = PLAN.at(step).settings
    decays, exempt = groups
    for group in groups:
        assert group["lr"] == pytest.approx(settings.lr)
        assert group["betas"] == (settings.beta1, settings.beta2)
    assert (decays["weight_decay"], exempt["weight_decay"]) == (settings.weight_decay, 0.0)


@pytest.mark.parametrize(
    ("trainer", "form", "defines"),
    [
        ("lightning", LIGHTNING, {"follow", "FollowPlan"}),
        ("composer", COMPOSER, {"follow", "PlanBatches", "FollowPlan"}),
    ],
)
def test_a_callback_is_short_python(trainer, form, defines):
    tree = ast.parse(export(PLAN, trainer))
    defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    assert defined == {"batch", "rate", *defines}
    own = [line for line in form.program.template.splitlines() if line.strip() not in ("", "$plan")]
    assert len(own) <= MOST_LINES


def test_lightning_accumulates_and_sets_every_step(code_of):
    """It steps where its count of micro-batches is a multiple of those accumulated."""
    code = code_of("lightning")
    trainer = types.SimpleNamespace(global_step=0, optimizers=[optimizer()])
    callback = code.FollowPlan(MICRO)
    batches = []
    count = 0
    taken = 0
    while trainer.global_step < code.STEPS:
        count += 1
        taken += MICRO
        callback.on_train_batch_start(trainer, None, None, count)
        assert_follows(trainer.optimizers[0].param_groups, trainer.global_step)
        if count % trainer.accumulate_grad_batches == 0:
            batches.append(taken)
            taken = 0
            trainer.global_step += 1
    assert batches == [step.batch for step in PLAN]
    trainer.global_step = 0
    with pytest.raises(AssertionError, match="8 must be a multiple of 3"):
        code.FollowPlan(3).on_train_batch_start(trainer)


def test_lightning_cannot_switch_within_a_count_of_micro_batches():
    plan = bss.plan("0:8 96:16", tokens=960, seq_len=12)
    with pytest.raises(bss.InputError, match="Lightning cannot switch to 16 after 8 sequences"):
        export(plan, "lightning")


@pytest.mark.parametrize("ranks", [1, 4])
def test_composer_takes_the_batches_of_the_plan(code_of, ranks):
    """Over all ranks, every sequence once and in order."""
    code = code_of("composer")
    data = range(PLAN.tokens // PLAN.seq_len)
    samplers = [code.PlanBatches(data, num_replicas=ranks, rank=rank) for rank in range(ranks)]
    assert {len(sampler) for sampler in samplers} == {PLAN.steps}
    taken = 0
    for step, parts in enumerate(zip(*samplers, strict=True)):
        size = PLAN.at(step).batch
        assert sorted(row for rows in parts for row in rows) == [*data[taken : taken + size]]
        taken += size
    assert (step + 1, taken) == (PLAN.steps, len(data))


def test_composer_needs_enough_data_and_whole_shares(code_of):
    code = code_of("composer")
    with pytest.raises(AssertionError, match="fewer sequences than the plan"):
        list(code.PlanBatches(range(20), num_replicas=1, rank=0))
    with pytest.raises(AssertionError, match="8 must be a multiple of 3 ranks"):
        next(iter(code.PlanBatches(range(2000), num_replicas=3, rank=0)))


def test_composer_sets_every_step(code_of):
    callback = code_of("composer").FollowPlan()
    state = types.SimpleNamespace(optimizers=[optimizer()], timestamp=types.SimpleNamespace())
    for step in range(PLAN.steps):
        state.timestamp.batch = types.SimpleNamespace(value=step)
        callback.batch_start(state, None)
        assert_follows(state.optimizers[0].param_groups, step)
