"""Exports run by the trainers' own parsers and schedules: batch and rate of every step.

`make test-trainers` installs the trainers and runs these tests; docs/schedule.md names the versions
that were run. A trainer that is not installed is skipped.
"""

import argparse
import math
import types

import numpy as np
import pytest

from bss.exports import export
from bss.schedules.coupling import Coupling
from bss.schedules.plan import resolve
from tests.exports.exported import (
    EDGES,
    code_of,
    edge,
    executed,
    installed,
    million,
    plan_arrays,
    plan_batches,
    rates_of,
    small,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SPACE = types.SimpleNamespace


@pytest.fixture(scope="module")
def plan():
    return million()


@pytest.mark.parametrize("trainer", ["huggingface", "deepspeed"])
def test_torch_takes_the_rate_of_every_step(trainer, plan):
    torch = installed("torch")
    code, rate = code_of(export(plan, trainer)), plan_arrays(plan)[1]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, code.rate)
    found = []
    for _ in range(plan.steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(found, rate, rtol=1e-12)
    assert math.isclose(found[-1], plan.segments[-1].lr_end)


def test_the_trainer_of_transformers_follows_the_plan(tmp_path):
    """Its own loop: sequences between optimizer steps, and the rate that each step used."""
    torch, transformers = installed("torch"), installed("transformers")
    installed("accelerate")
    plan = small()
    text = export(plan, "huggingface")
    assert "cannot switch" not in text
    code = executed(text)
    seen, batches, used = [], [], []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            seen.append(len(x))
            return {"loss": (self.weight - x).square().mean()}

    class Watch(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            batches.append(sum(seen))
            used.append(optimizer.param_groups[0]["lr"])
            seen.clear()

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, code.rate)
    arguments = transformers.TrainingArguments(
        tmp_path, max_steps=plan.steps, gradient_accumulation_steps=code.batch(0) // 2,
        per_device_train_batch_size=2, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(
        model, arguments, train_dataset=[{"x": float(i)} for i in range(300)],
        optimizers=(optimizer, scheduler), callbacks=[code.FollowPlan(2), Watch()],
    ).train()  # fmt: skip
    assert batches == plan_batches(plan)
    assert used == pytest.approx(rates_of(plan))


@pytest.fixture
def megatron(monkeypatch):
    """Batch and rate of every step by its own arguments, count of steps, and scheduler."""
    training = installed("megatron.training.training")
    calculator = installed("megatron.core.num_microbatches_calculator")
    arguments = installed("megatron.training.arguments")

    def run(plan):
        flags = [f for f in export(plan, "megatron").splitlines() if f.startswith("--")]
        args = arguments.add_megatron_arguments(argparse.ArgumentParser()).parse_args(
            [part.strip('"') for flag in flags for part in flag.split(" ", 1)]
        )
        args.start_weight_decay = args.end_weight_decay = args.weight_decay  # as validate_args
        monkeypatch.setattr(training, "get_args", lambda: args)
        monkeypatch.setattr(training, "print_rank_0", lambda line: None)
        calculator.init_num_microbatches_calculator(
            1, None, None, 1, 1, step_batch_size_schedule=args.step_batch_size_schedule,
            seq_length=args.seq_length,
        )  # fmt: skip
        group, batches, used = {"lr": None}, [], []
        scheduler = training.get_optimizer_param_scheduler(SPACE(param_groups=[group]))
        assert args.train_iters == plan.steps
        for _ in range(plan.steps):
            calculator.update_num_microbatches(scheduler.num_steps)
            batches.append(calculator.get_current_global_batch_size())
            used.append(group["lr"])
            scheduler.step(batches[-1])
        calculator.unset_num_microbatches_calculator()
        return batches, used

    return run


def test_megatron_takes_every_batch_and_rate(megatron, plan):
    batches, used = megatron(plan)
    np.testing.assert_array_equal(batches, plan_arrays(plan)[0])
    np.testing.assert_allclose(used, plan_arrays(plan)[1], rtol=1e-12)


@pytest.mark.parametrize("name", EDGES)
def test_megatron_takes_the_ends_of_a_rate(megatron, name):
    plan = edge(name)
    batches, used = megatron(plan)
    assert batches == plan_batches(plan)
    other = 4e-3 * (16 - 8) / 2 * plan.seq_len / 81_920  # half a batch of the warm-up
    told = "half a batch" in export(plan, "megatron")
    np.testing.assert_allclose(used, plan_arrays(plan)[1], rtol=1e-9, atol=other if told else 0)


def test_olmo_core_takes_every_batch_and_rate(plan):
    """By its own callback, setter of the batch, and scheduler."""
    torch, optim = installed("torch"), installed("olmo_core.optim")
    base = installed("olmo_core.data.data_loader").DataLoaderBase
    module = object.__new__(installed("olmo_core.train.train_module").TransformerTrainModule)
    code = executed(export(plan, "olmo-core"))
    abstract = dict.fromkeys(base.__abstractmethods__)
    loader = object.__new__(type("Loader", (base,), abstract))
    loader._global_batch_size, loader.batches_processed = code.batch(0) * code.SEQ_LEN, 0
    config = optim.AdamWConfig(**code.ADAMW)
    module.scheduler, module.optim = code.PlanRate(), config.build(torch.nn.Linear(1, 1))
    (group,) = module.optim.param_groups
    trainer = SPACE(
        train_module=module, data_loader=loader, global_step=0, global_train_tokens_seen=0, epoch=1,
        max_steps=code.STEPS, callbacks={}, max_duration=code.Duration.steps(code.STEPS),
    )  # fmt: skip
    code.changes.trainer = trainer
    code.changes.post_attach()
    batches, used = [], []
    for _ in range(plan.steps):
        code.changes.pre_load_batch()
        batches.append(loader.global_batch_size // code.SEQ_LEN)
        loader.batches_processed += 1
        trainer.global_step += 1
        trainer.global_train_tokens_seen += loader.global_batch_size
        used.append(float(module.scheduler.set_lr(group, trainer)))
    np.testing.assert_array_equal(batches, plan_arrays(plan)[0])
    np.testing.assert_allclose(used, plan_arrays(plan)[1], rtol=1e-12)


def torchtitan_trainer(code):
    """The pasted trainer without what its constructor builds on devices."""
    trainer = object.__new__(code.FollowPlan)
    trainer.config = SPACE(training=code.training)
    trainer.gradient_accumulation_steps, trainer.micro, trainer.step = None, 2, 0
    return trainer


def test_torchtitan_takes_every_batch_and_rate(plan, monkeypatch):
    torch = installed("torch")
    titan = installed("torchtitan.trainer")
    code = executed(export(plan, "torchtitan"))
    assert (code.training.steps, code.training.global_batch_size) == (plan.steps, 8)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=code.ADAMW["lr"])
    scheduler = code.lr_scheduler.build(optimizers=[optimizer], training_steps=plan.steps)
    trainer, batches, used = torchtitan_trainer(code), [], []

    def train_step(self, data_iterator):
        batches.append(self.gradient_accumulation_steps * self.micro)
        used.append(optimizer.param_groups[0]["lr"])
        scheduler.step()

    monkeypatch.setattr(titan.Trainer, "train_step", train_step)
    while trainer.should_continue_training():
        trainer.step += 1
        trainer.train_step(None)
    np.testing.assert_array_equal(batches, plan_arrays(plan)[0])
    np.testing.assert_allclose(used, plan_arrays(plan)[1], rtol=1e-12)


def test_the_step_of_torchtitan_accumulates_the_batch():
    """Its own train_step: sequences between optimizer steps, and the rate that each used."""
    torch = installed("torch")
    installed("torchtitan.trainer")
    plan = small()
    code = executed(export(plan, "torchtitan"))
    model = torch.nn.Linear(1, 1)
    optimizers = code.optimizer.build(model_parts=[model])
    trainer, seen, batches, used = torchtitan_trainer(code), [], [], []
    (optimizer,) = optimizers

    def forward_backward(*, input_dict, labels, global_valid_tokens):
        seen.append(len(labels))
        loss = (model(input_dict["input"]) - labels).square().sum() / global_valid_tokens
        loss.backward()
        return loss

    def stepped(*_):
        batches.append(sum(seen))
        used.append(optimizer.param_groups[0]["lr"])
        seen.clear()

    optimizer.register_step_pre_hook(stepped)
    trainer.optimizers, trainer.model_parts, trainer.device = optimizers, [model], "cpu"
    trainer.lr_schedulers = code.lr_scheduler.build(
        optimizers=optimizers, training_steps=plan.steps
    )
    trainer.num_pipeline_parallel_microbatches = 1
    trainer.forward_backward_step = forward_backward
    trainer.checkpointer = SPACE(maybe_wait_for_staging=lambda: None)
    trainer.metrics_processor = SPACE(should_log=lambda step: False)
    trainer.parallel_dims = SPACE(
        dp_enabled=False, pp_enabled=False, ep_enabled=False, get_optional_mesh=lambda name: None
    )
    micro_batches = iter(lambda: ({"input": torch.ones(2, 1)}, torch.zeros(2, 1)), None)
    while trainer.should_continue_training():
        trainer.step += 1
        trainer.train_step(micro_batches)
    assert batches == plan_batches(plan)
    assert used == pytest.approx(rates_of(plan))


def test_deepspeed_takes_every_batch(plan):
    """By its own parser of the config, setter of the batch, and boundary of a step."""
    deepspeed = installed("deepspeed")
    config = installed("deepspeed.runtime.config").DeepSpeedConfig
    code = code_of(export(plan, "deepspeed"))
    micro = {"train_batch_size": code.batch(0), "train_micro_batch_size_per_gpu": 8}
    engine = object.__new__(deepspeed.DeepSpeedEngine)
    engine.__dict__.update(
        _config=config(micro), dp_world_size=1, global_steps=0, micro_steps=0,
        _is_gradient_accumulation_boundary=None, zenflow=False,
    )  # fmt: skip
    batches = []
    for _ in range(plan.steps):
        code.follow(engine)
        done = engine.micro_steps
        while not engine.is_gradient_accumulation_boundary():
            engine.micro_steps += 1
        engine.micro_steps += 1
        engine.global_steps += 1
        batches.append((engine.micro_steps - done) * 8)
    np.testing.assert_array_equal(batches, plan_arrays(plan)[0])


def test_the_engine_of_deepspeed_follows_the_plan(monkeypatch):
    """Its own engine: sequences between optimizer steps, and the rate that each used."""
    torch = installed("torch")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    deepspeed = installed("deepspeed")
    one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    for name, value in {**one, "MASTER_PORT": "29613"}.items():
        monkeypatch.setenv(name, value)
    plan = small()
    code = executed(export(plan, "deepspeed"))
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), **code.ADAMW)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, dist_init_required=True,
        lr_scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, code.rate),
        config={"train_batch_size": code.batch(0), "train_micro_batch_size_per_gpu": 2},
    )  # fmt: skip
    seen, batches, used = [], [], []

    def stepped(*_):
        batches.append(sum(seen))
        used.append(optimizer.param_groups[0]["lr"])
        seen.clear()

    optimizer.register_step_pre_hook(stepped)
    while engine.global_steps < plan.steps:
        code.follow(engine)
        step = engine.global_steps
        while engine.global_steps == step:
            seen.append(2)
            engine.backward(engine(torch.ones(2, 1)).square().mean())
            engine.step()
    torch.distributed.destroy_process_group()
    assert batches == plan_batches(plan)
    assert used == pytest.approx(rates_of(plan))


def test_the_trainer_of_lightning_follows_the_plan(tmp_path):
    """Its own loop: sequences between optimizer steps, and the settings that each step used."""
    torch, lightning = installed("torch"), installed("lightning.pytorch")
    plan = resolve(
        small().schedule, 300 * 16, 16, rate=small().rate, coupling=Coupling(beta2_half_life=2000)
    )
    code = executed(export(plan, "lightning"))
    seen, batches, used = [], [], []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, rows):
            seen.append(len(rows))
            return (self.weight - rows).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def on_before_optimizer_step(self, optimizer):
            batches.append(sum(seen))
            (group,) = optimizer.param_groups
            used.append((group["lr"], group["betas"][1]))
            seen.clear()

    trainer = lightning.Trainer(
        max_steps=code.STEPS, max_epochs=1, callbacks=[code.FollowPlan(2)], accelerator="cpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    rows = torch.arange(300.0)
    trainer.fit(Model(), torch.utils.data.DataLoader(rows, batch_size=2))
    assert batches == plan_batches(plan)
    settings = [plan.at(step).settings for step in range(plan.steps)]
    np.testing.assert_allclose(used, [(each.lr, each.beta2) for each in settings])


@pytest.mark.parametrize("beta2_half_life", [None, 2000])
def test_the_plain_loop_trains_with_the_settings_of_the_plan(beta2_half_life):
    torch = installed("torch")
    coupling = Coupling(lr="sqrt", reference_batch=4, beta2_half_life=beta2_half_life)
    plan = resolve(small().schedule, 300 * 16, 16, rate=small().rate, coupling=coupling)
    code = executed(export(plan, "torch"))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    rows = torch.randn(300, 3)
    taken, used = [0], []

    def take(count):
        taken[0] += count
        return rows[taken[0] - count : taken[0]]

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    losses = []
    for _, loss in code.train(model, lambda m, x: (m(x) - 1).square().mean(), optimizer, take, 4):
        losses.append(float(loss))
        used.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][1]))
    settings = [plan.at(step).settings for step in range(plan.steps)]
    usual = 0.999 if beta2_half_life is None else None
    np.testing.assert_allclose([lr for lr, _ in used], [s.lr for s in settings])
    assert [beta2 for _, beta2 in used] == [usual or s.beta2 for s in settings]
    assert taken == [plan.tokens // 16] and losses[-1] < losses[0]
