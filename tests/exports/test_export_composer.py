"""The export for composer, run by its Trainer; it needs an older torch than other trainers."""

import pytest

from bss.exports import export
from tests.exports.exported import executed, installed, plan_batches, rates_of, small

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_the_trainer_of_composer_follows_the_plan():
    """Its own loop: sequences of each step, and the rate that each step used."""
    torch, composer = installed("torch"), installed("composer")
    plan = small()
    code = executed(export(plan, "composer"))
    seen, batches, used = [], [], []

    class Model(composer.ComposerModel):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, rows):
            seen.append(len(rows))
            return (self.weight - rows).square().mean()

        def loss(self, outputs, batch):
            return outputs

    class Watch(composer.Callback):
        def batch_end(self, state, logger):
            batches.append(sum(seen))
            used.append(state.optimizers[0].param_groups[0]["lr"])
            seen.clear()

    model = Model()
    rows = torch.arange(300.0)
    batch_sampler = code.PlanBatches(rows, num_replicas=1, rank=0)
    composer.Trainer(
        model=model, optimizers=torch.optim.AdamW(model.parameters()), device="cpu",
        train_dataloader=torch.utils.data.DataLoader(rows, batch_sampler=batch_sampler),
        max_duration=f"{code.STEPS}ba", device_train_microbatch_size=2, progress_bar=False,
        callbacks=[code.FollowPlan(), Watch()],
    ).fit()  # fmt: skip
    assert batches == plan_batches(plan)
    assert used == pytest.approx(rates_of(plan))
