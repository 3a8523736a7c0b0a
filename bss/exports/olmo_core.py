"""Export to OLMo-core: Python with its batch-size callback and an LR scheduler.

ai2-olmo-core 3.0.0, `train/callbacks/batch_size_scheduler.py`, `optim/scheduler.py`,
`data/data_loader.py`: the batch size changes by integer factors. It counts micro-batches, so a
switch must be at a multiple of the new batch size.
"""

import itertools
import math
from collections.abc import Iterator
from string import Template

from bss.exports.base import Export, with_batches
from bss.schedules.plan import Plan

PROGRAM = Template('''\
from dataclasses import dataclass

from olmo_core.optim.scheduler import Scheduler
from olmo_core.train import Duration
from olmo_core.train.callbacks import BatchSizeSchedulerCallback

$plan


@dataclass
class PlanRate(Scheduler):
    """The plan's LR. It ignores initial_lr, which OLMo-core scales at a batch change."""

    def get_lr(self, initial_lr, current, t_max):
        return rate(current - 1)  # OLMo-core counts steps from 1


changes = BatchSizeSchedulerCallback(
    batch_sizes=[size * SEQ_LEN for size in BATCH],
    schedule=[Duration.steps(step) for step in FIRST],
)
# NumpyDataLoaderConfig(global_batch_size=batch(0) * SEQ_LEN, ...)
# TransformerTrainModuleConfig(optim=AdamWConfig(**ADAMW), scheduler=PlanRate(), ...)
# TrainerConfig(max_duration=Duration.steps(STEPS), ...).with_callback("batch_size", changes)''')


def _cannot(plan: Plan) -> Iterator[str]:
    sizes = (segment.batch * plan.seq_len for segment in plan.segments)
    for before, after in itertools.pairwise(sizes):
        if max(before, after) % min(before, after):
            change = f"from {before} to {after} tokens"
            yield f"OLMo-core changes the batch size by integer factors, not {change}"


def _nearest(plan: Plan) -> Plan:
    """Return the plan with each batch size rounded to a multiple or divisor of the previous."""
    batches = [plan.segments[0].batch]
    for segment in plan.segments[1:]:
        before, factor = batches[-1], segment.batch / batches[-1]
        parts = [before // k for k in range(1, min(before, 4096) + 1) if before % k == 0]
        choices = [before * max(math.floor(factor), 1), before * math.ceil(factor), *parts]
        batches.append(min(choices, key=lambda batch: abs(math.log(batch / segment.batch))))
    return with_batches(plan, (s.start_tokens for s in plan.segments), batches)


OLMO_CORE = Export(
    "OLMo-core", program=PROGRAM, counts="OLMo-core", cannot=_cannot, nearest=_nearest
)
