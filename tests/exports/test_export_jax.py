"""Exports run by the parsers and schedules of trainers in JAX: batch and rate of every step.

`make test-trainers` installs the trainers and runs these tests; docs/schedule.md names the versions
that were run. A trainer that is not installed is skipped.
"""

import importlib.resources

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from bss.exports import export
from bss.schedules.plan import Plan
from bss.schedules.rates import WarmupStableDecay
from tests.exports.exported import (
    EDGES,
    SCHEDULE,
    edge,
    installed,
    million,
    plan_arrays,
    plan_batches,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PRECISION = 4e-7  # both reckon in float32, as parts of the peak


def levanter(plan: Plan):
    """Batch and rate of every step by its own config and schedules."""
    config = installed("levanter.optim.config")
    draccus, schedules = installed("draccus"), installed("levanter.schedule")
    settings = yaml.safe_load(export(plan, "levanter", approximate=True))
    steps = settings["trainer"]["num_train_steps"]
    schedule = schedules.BatchSchedule(
        draccus.decode(int | schedules.IntSchedule, settings["trainer"]["train_batch_size"])
    )
    assert schedule.global_data_offset_by_step(steps) * plan.seq_len == plan.tokens
    optimizer = draccus.decode(config.OptimizerConfig, settings["optimizer"])
    batches = [schedule.batch_size_at_step(step) for step in range(steps)]
    return batches, np.broadcast_to(optimizer.lr_scheduler(steps)(jnp.arange(steps)), steps)


def levanter_rates(plan: Plan) -> np.ndarray:
    """The plan's rate at a step's start."""
    return plan_arrays(plan, 0.0)[1]


def maxtext(plan: Plan):
    """Batch and rate of every step by its own config, manager of the ramp, and schedule."""
    utils = installed("maxtext.utils.maxtext_utils")
    pyconfig = installed("maxtext.configs.pyconfig")
    rampup = installed("maxtext.utils.rampup_batch")
    base = importlib.resources.files("maxtext.configs") / "base.yml"
    config = pyconfig.initialize(
        ["", str(base), "run_name=plan", "skip_jax_distributed_system=true"],
        **yaml.safe_load(export(plan, "maxtext", approximate=True)),
    )
    manager, batches = rampup.create_rampup_manager(config, None), []
    for _ in range(config.steps):
        batches.append(
            manager.global_batch_size_current if manager else config.global_batch_size_to_train_on
        )
        _ = manager and manager.update()
    rate = utils.create_learning_rate_schedule(config)(jnp.arange(config.steps))
    return batches, np.broadcast_to(rate, config.steps)


def maxtext_rates(plan: Plan) -> np.ndarray:
    """The plan's rate at a step's start, and in the decay so that the last step has the floor."""
    rate, start = plan.rate, plan_arrays(plan, 0.0)[1]
    assert isinstance(rate, WarmupStableDecay)
    if not rate.decay:
        return start
    first = plan.step_at(int(rate.total - rate.decay))
    part = np.linspace(0, 1, plan.steps - first)
    return np.append(start[:first], rate(rate.total - rate.decay + part * rate.decay))


RUNS = {"levanter": (levanter, levanter_rates), "maxtext": (maxtext, maxtext_rates)}
SCHEDULES = {"levanter": SCHEDULE, "maxtext": "0:8 614.4M:16 1.2288B:24"}


@pytest.mark.parametrize("shape", ["linear", "cosine"])
@pytest.mark.parametrize("trainer", RUNS)
def test_every_batch_and_rate_of_a_million_steps(trainer, shape):
    plan = million(shape, schedule=SCHEDULES[trainer])
    taken, wanted = RUNS[trainer]
    batches, used = taken(plan)
    np.testing.assert_array_equal(batches, plan_arrays(plan)[0])
    np.testing.assert_allclose(used, wanted(plan), rtol=0, atol=4e-3 * PRECISION)


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("trainer", RUNS)
def test_the_ends_of_a_rate(trainer, name):
    plan = edge(name)
    taken, wanted = RUNS[trainer]
    batches, used = taken(plan)
    assert batches == plan_batches(plan)
    if "across a batch change" not in export(plan, trainer, approximate=True):
        np.testing.assert_allclose(used, wanted(plan), rtol=0, atol=4e-3 * PRECISION)
